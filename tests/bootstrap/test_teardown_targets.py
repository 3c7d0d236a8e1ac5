"""What is the tunnel's, and what only looks like it."""

from pathlib import Path

import pytest
from tests.support.object_store import LABELLED, ObjectStore, thing, tunnel_store, with_client
from tests.support.scripted_api import status_answer

from umbilical.bootstrap.teardown_targets import Choice, Found, find_targets

SEED_SET = "/apis/apps/v1/namespaces/kube-system/daemonsets/konnectivity-agent"
SEED_SECRET = "/api/v1/namespaces/kube-system/secrets/konnectivity-agent-certs"
OWN_NAMESPACE = "/api/v1/namespaces/openshift-bootstrap-konnectivity"


def found(store: ObjectStore, folder: Path, choice: Choice = Choice.AUTO, namespace: str | None = None) -> Found:
    return with_client(store, folder, lambda client: find_targets(client, choice, namespace))


def names(result: Found) -> list[str]:
    return [str(target) for target in result.targets]


def test_labelled_objects_come_in_the_order_of_their_deletion(tmp_path: Path) -> None:
    store = tunnel_store()
    store.objects |= {SEED_SET: thing("a", **LABELLED), SEED_SECRET: thing("b", **LABELLED)}
    assert names(found(store, tmp_path)) == [
        "DaemonSet openshift-bootstrap-konnectivity/konnectivity-agent",
        "DaemonSet kube-system/konnectivity-agent",
        "Secret openshift-bootstrap-konnectivity/konnectivity-agent-certs",
        "Secret kube-system/konnectivity-agent-certs",
        "Namespace openshift-bootstrap-konnectivity",
    ]


def test_an_empty_cluster_has_no_targets(tmp_path: Path) -> None:
    assert found(ObjectStore(), tmp_path) == Found()


@pytest.mark.parametrize(
    "labels", [{}, {"openshift.io/bootstrap-only": "false"}, {"openshift.io/bootstrap-only": True}]
)
def test_what_lacks_the_label_is_kept(labels: dict[str, object], tmp_path: Path) -> None:
    store = ObjectStore({SEED_SET: thing("a", labels=labels), OWN_NAMESPACE: thing("n", labels=labels)})
    result = found(store, tmp_path)
    assert result.targets == []
    assert {str(target) for target in result.kept} == {
        "DaemonSet kube-system/konnectivity-agent",
        "Namespace openshift-bootstrap-konnectivity",
    }


def test_the_seed_shape_goes_by_name_and_never_takes_the_namespace(tmp_path: Path) -> None:
    system = thing("k", **LABELLED)
    store = ObjectStore({SEED_SET: thing("a"), SEED_SECRET: thing("b"), "/api/v1/namespaces/kube-system": system})
    assert names(found(store, tmp_path, Choice.SEED)) == [
        "DaemonSet kube-system/konnectivity-agent",
        "Secret kube-system/konnectivity-agent-certs",
    ]


def test_the_seed_shape_in_another_namespace_takes_it_only_with_the_label(tmp_path: Path) -> None:
    store = tunnel_store("elsewhere")
    store.objects["/api/v1/namespaces/elsewhere"] = thing("n")
    result = found(store, tmp_path, Choice.SEED, "elsewhere")
    assert [target.kind.name for target in result.targets] == ["DaemonSet", "Secret"]
    assert [str(target) for target in result.kept] == ["Namespace elsewhere"]


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public", "kube-node-lease"])
def test_no_label_makes_a_namespace_of_kubernetes_a_target(name: str, tmp_path: Path) -> None:
    store = ObjectStore({f"/api/v1/namespaces/{name}": thing("k", **LABELLED)})
    assert found(store, tmp_path, Choice.AUTO, name) == Found()


def test_a_shape_is_looked_for_in_its_own_place_only(tmp_path: Path) -> None:
    store = tunnel_store()
    store.objects[SEED_SET] = thing("a", **LABELLED)
    assert "kube-system" not in " ".join(names(found(store, tmp_path, Choice.OPENSHIFT)))


def test_what_goes_already_is_marked(tmp_path: Path) -> None:
    store = ObjectStore({OWN_NAMESPACE: thing("n", deletionTimestamp="2026-11-15T12:00:00Z", **LABELLED)})
    (target,) = found(store, tmp_path).targets
    assert target.is_going


def test_a_refusal_is_kept_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    store = tunnel_store()
    path = "/api/v1/namespaces/openshift-bootstrap-konnectivity/secrets/konnectivity-agent-certs"
    store.faults["GET", path] = status_answer(403, "Forbidden")
    result = found(store, tmp_path)
    assert [target.kind.name for target in result.targets] == ["DaemonSet", "Namespace"]
    assert [refusal.status for refusal in result.refusals] == [403]


def test_a_secrets_content_is_not_asked_for(tmp_path: Path) -> None:
    store = tunnel_store()
    found(store, tmp_path)
    accepts = [request.headers["accept"] for request in store.requests if "/secrets/" in request.path]
    assert accepts
    assert all("PartialObjectMetadata" in accept for accept in accepts)
