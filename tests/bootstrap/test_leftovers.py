"""What is still there after a deletion, and what holds it."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.object_store import ObjectStore, thing, with_client
from tests.support.scripted_api import status_answer

from umbilical.bootstrap.leftovers import CONDITIONS, leftovers, why_terminating
from umbilical.bootstrap.teardown_targets import Target
from umbilical.cluster.objects import DAEMON_SET, NAMESPACE, SECRET

SECRET_TARGET = Target(SECRET, "certs", "tunnel", "s", is_going=True)
AGENTS = Target(DAEMON_SET, "agent", "tunnel", "d", is_going=True)
PLACE = Target(NAMESPACE, "tunnel", None, "n", is_going=True)


def left(store: ObjectStore, folder: Path, *targets: Target) -> dict[str, str]:
    return with_client(store, folder, lambda client: leftovers(client, targets))


def condition(name: str, status: str = "True") -> dict[str, str]:
    return {"type": name, "status": status, "message": f"message of {name}"}


def test_nothing_is_left_of_what_is_gone(tmp_path: Path) -> None:
    assert left(ObjectStore(), tmp_path, SECRET_TARGET, AGENTS, PLACE) == {}


def test_an_object_that_took_the_name_is_not_a_leftover(tmp_path: Path) -> None:
    store = ObjectStore({SECRET.path("tunnel", "certs"): thing("another")})
    assert left(store, tmp_path, SECRET_TARGET) == {}


def test_finalizers_are_named(tmp_path: Path) -> None:
    store = ObjectStore({SECRET.path("tunnel", "certs"): thing("s", finalizers=["a/b", "c"])})
    assert left(store, tmp_path, SECRET_TARGET) == {"Secret tunnel/certs": "metadata.finalizers: a/b, c"}
    store = ObjectStore({SECRET.path("tunnel", "certs"): thing("s")})
    assert left(store, tmp_path, SECRET_TARGET) == {"Secret tunnel/certs": "being deleted"}


def test_what_may_not_be_looked_at_counts_as_there(tmp_path: Path) -> None:
    store = ObjectStore(faults={("GET", SECRET.path("tunnel", "certs")): status_answer(403, "Forbidden", "not you")})
    assert left(store, tmp_path, SECRET_TARGET) == {"Secret tunnel/certs": "cannot be looked at: not you"}


def test_pods_of_the_agents_are_leftovers_until_they_end(tmp_path: Path) -> None:
    pods = "/api/v1/namespaces/tunnel/pods"
    store = ObjectStore(
        {
            f"{pods}/a": thing("1", name="agent-a", ownerReferences=[{"uid": "d"}]),
            f"{pods}/b": thing("2", name="other", ownerReferences=[{"uid": "x"}]),
        }
    )
    assert left(store, tmp_path, AGENTS) == {"Pod tunnel/agent-a": "ending"}
    store.faults["GET", pods] = status_answer(403, "Forbidden")
    assert left(store, tmp_path, AGENTS) == {}


@pytest.mark.parametrize("name", CONDITIONS)
def test_each_condition_that_holds_a_namespace_is_told(name: str) -> None:
    told = why_terminating({"status": {"conditions": [condition(name), condition("Other")]}})
    assert f"{name}: message of {name}" in told
    assert "Other" not in told


def test_a_condition_that_does_not_hold_is_not_told() -> None:
    namespace = {
        "metadata": {"finalizers": ["example.test/hold"]},
        "status": {"conditions": [condition("NamespaceContentRemaining", "False")]},
        "spec": {"finalizers": ["kubernetes"]},
    }
    assert why_terminating(namespace) == "metadata.finalizers: example.test/hold"


def test_a_namespace_that_nobody_works_on_is_told() -> None:
    told = why_terminating({"spec": {"finalizers": ["kubernetes"]}})
    assert told.startswith("spec.finalizers: kubernetes; kube-controller-manager")


@given(
    st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), st.dictionaries(st.text(), st.text()) | st.text())
)
def test_an_odd_namespace_is_no_crash(namespace: dict[str, Any]) -> None:
    assert why_terminating(namespace)
