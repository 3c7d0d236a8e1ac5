"""Objects in files: what a lab without an API runs of them."""

import asyncio
import base64
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.manifests import MINIMAL, changed, json_values

from umbilical.lab.cast import Cast
from umbilical.lab.pods.daemons import Daemons
from umbilical.lab.pods.spec import Kind, Pod
from umbilical.lab.tunnel_parts import make_parts
from umbilical.pki.authority import Authority

LABELS = {"kubernetes.io/hostname": "node-1"}


def written(*documents: dict[str, Any]) -> dict[str, bytes]:
    return {"objects.yaml": yaml.safe_dump_all(documents).encode()}


def daemons(*documents: dict[str, Any]) -> tuple[Daemons, list[Pod]]:
    found = Daemons("node-1", LABELS)
    return found, list(found.read(written(*documents)).values())


def values_of(found: Daemons, kind: Kind, namespace: str, name: str) -> dict[str, bytes] | None:
    values = asyncio.run(found.values(kind, namespace, name))
    return None if values is None else dict(values)


def test_the_rendered_agents_run_with_their_secret() -> None:
    parts = make_parts(Cast(), "10.91.0.10", Authority, datetime.now(UTC))
    found, (pod,) = daemons(*parts.objects)
    assert pod.namespace == parts.spec.namespace
    assert pod.name.startswith("konnectivity-agent-")
    assert pod.uid
    assert "--proxy-server-host=10.91.0.10" in pod.containers[0].arguments
    values = values_of(found, Kind.SECRET, parts.spec.namespace, "konnectivity-agent-certs")
    assert values is not None
    assert values["tls.key"] == parts.certificates.agent.key


def test_the_same_daemon_set_has_another_pod_on_another_node() -> None:
    objects = make_parts(Cast(), "10.91.0.10", Authority, datetime.now(UTC)).objects
    names = {pod.title for node in ("a", "b") for pod in Daemons(node, {}).read(written(*objects)).values()}
    assert len(names) == 2


def test_a_changed_template_is_another_pod_of_the_same_name() -> None:
    found, (first,) = daemons(MINIMAL)
    (second,) = found.read(written(changed(MINIMAL, "spec", hostNetwork=True))).values()
    assert first.title == second.title
    assert first.uid != second.uid


def test_a_changed_secret_is_no_other_pod() -> None:
    secret = {"kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "one"}}
    found, (first,) = daemons(MINIMAL, secret)
    (second,) = found.read(written(MINIMAL, {**secret, "stringData": {"k": "two"}})).values()
    assert first.uid == second.uid
    assert values_of(found, Kind.SECRET, "default", "s") == {"k": b"two"}


def test_values_are_decoded_as_the_api_would() -> None:
    data = {"binary": base64.b64encode(b"\x00\xff").decode()}
    found, _ = daemons(
        {"kind": "Secret", "metadata": {"name": "s"}, "data": data, "stringData": {"text": "ä"}},
        {"kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "data": {"text": "x"}, "binaryData": data},
    )
    assert values_of(found, Kind.SECRET, "default", "s") == {"binary": b"\x00\xff", "text": "ä".encode()}
    assert values_of(found, Kind.CONFIG_MAP, "n", "c") == {"binary": b"\x00\xff", "text": b"x"}
    assert values_of(found, Kind.SECRET, "default", "other") is None


def test_a_node_selector_chooses_nodes() -> None:
    assert daemons(changed(MINIMAL, "spec", nodeSelector={"kubernetes.io/hostname": "node-2"}))[1] == []
    assert len(daemons(changed(MINIMAL, "spec", nodeSelector=LABELS))[1]) == 1


def test_what_is_none_of_ours_changes_nothing() -> None:
    assert daemons({"kind": "Service", "metadata": {"name": "s"}}, {"kind": 7}, {"no": "kind"})[1] == []


@pytest.mark.parametrize(
    "document",
    [{"kind": "Secret"}, {"kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "*"}}, {"kind": "DaemonSet"}],
)
def test_a_broken_object_is_logged_and_the_rest_is_taken(
    document: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    _, pods = daemons(document, MINIMAL)
    assert len(pods) == 1
    assert "UMB831" in caplog.text


@given(st.lists(json_values(), max_size=3), st.sampled_from(["Pod", "DaemonSet", "Secret", "ConfigMap"]))
def test_whatever_lies_there_is_taken_or_logged(values: list[Any], kind: str) -> None:
    documents = [{**value, "kind": kind} if isinstance(value, dict) else value for value in values]
    found = Daemons("node-1", LABELS).read({"f": yaml.safe_dump_all(documents).encode()})
    assert all(isinstance(pod, Pod) for pod in found.values())
