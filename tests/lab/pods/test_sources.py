"""Where pods come from: static files, objects in files, and the API by list and watch."""

import asyncio
import base64
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fixture_types import Patch
from tests.support.manifests import MINIMAL, changed, json_values
from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer, status_answer, watch_answer

from umbilical.cluster.client import make_client
from umbilical.lab.pods import api_sync
from umbilical.lab.pods.api_sync import PodWatch
from umbilical.lab.pods.spec import LabPod, SourceKind
from umbilical.lab.pods.static_pods import Daemons, NoSources, StaticPods, read_folder
from umbilical.lab.tunnel_parts import ScenarioOptions, make_parts
from umbilical.pki.authority import Authority

FILE = yaml.safe_dump(MINIMAL).encode()
OTHER = yaml.safe_dump(changed(MINIMAL, "spec", hostNetwork=True)).encode()


def test_a_file_is_a_pod_that_bears_the_nodes_name_until_it_changes_or_goes() -> None:
    (pod,) = StaticPods("node-1").read({"a.yaml": FILE}).values()
    assert pod.title == "default/sample-node-1"
    assert pod.uid
    pods = StaticPods("node-1")
    first = pods.read({"a.yaml": FILE})
    assert pods.read({"a.yaml": FILE}) == first
    assert set(pods.read({"a.yaml": OTHER})).isdisjoint(first)
    assert pods.read({}) == {}


def test_a_file_that_is_being_written_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    pods = StaticPods("node-1")
    first = pods.read({"a.yaml": FILE})
    assert pods.read({"a.yaml": FILE[:20]}) == first
    assert pods.read({"a.yaml": FILE[:20]}) == first
    assert len(caplog.records) == 1
    assert "UMB830" in caplog.text or "UMB831" in caplog.text


def test_one_bad_file_hurts_no_other_and_of_two_with_one_pod_the_first_counts() -> None:
    assert len(StaticPods("node-1").read({"a.yaml": b"nonsense", "b.yaml": FILE})) == 1
    pods = StaticPods("node-1").read({"b.yaml": OTHER, "a.yaml": FILE})
    assert [pod.uses_node_network for pod in pods.values()] == [False]


async def test_hidden_files_are_passed_over_and_static_pods_get_nothing_of_the_apis(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(FILE)
    (tmp_path / ".hidden.yaml").write_bytes(FILE)
    (tmp_path / "folder").mkdir()
    os.symlink("/nowhere", tmp_path / "broken")
    assert read_folder(tmp_path) == {"a.yaml": FILE}
    assert read_folder(tmp_path / "missing") == {}
    (pod,) = StaticPods("n").read({"a": FILE}).values()
    nobody = NoSources()
    assert await nobody.values(SourceKind.SECRET, "a", "b") is None
    assert await nobody.token(pod, "", 600) is None


LABELS = {"kubernetes.io/hostname": "node-1"}


def written(*documents: dict[str, Any]) -> dict[str, bytes]:
    return {"objects.yaml": yaml.safe_dump_all(documents).encode()}


def daemons(*documents: dict[str, Any]) -> tuple[Daemons, list[LabPod]]:
    found = Daemons("node-1", LABELS)
    return found, list(found.read(written(*documents)).values())


def values_of(found: Daemons, kind: SourceKind, namespace: str, name: str) -> dict[str, bytes] | None:
    values = asyncio.run(found.values(kind, namespace, name))
    return None if values is None else dict(values)


def test_the_rendered_agents_run_with_their_secret() -> None:
    parts = make_parts(ScenarioOptions(), "10.91.0.10", Authority, datetime.now(UTC))
    found, (pod,) = daemons(*parts.objects)
    assert pod.namespace == parts.spec.namespace
    assert pod.name.startswith("konnectivity-agent-")
    assert pod.uid
    assert "--proxy-server-host=10.91.0.10" in pod.containers[0].arguments
    values = values_of(found, SourceKind.SECRET, parts.spec.namespace, "konnectivity-agent-certs")
    assert values is not None
    assert values["tls.key"] == parts.certificates.agent.key
    assert [one.title for one in Daemons("node-2", {}).read(written(*parts.objects)).values()] != [pod.title]


def test_a_changed_template_is_another_pod_of_the_same_name_and_a_changed_secret_is_not() -> None:
    found, (first,) = daemons(MINIMAL)
    (second,) = found.read(written(changed(MINIMAL, "spec", hostNetwork=True))).values()
    assert first.title == second.title
    assert first.uid != second.uid
    secret = {"kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "one"}}
    found, (first,) = daemons(MINIMAL, secret)
    (second,) = found.read(written(MINIMAL, {**secret, "stringData": {"k": "two"}})).values()
    assert first.uid == second.uid
    assert values_of(found, SourceKind.SECRET, "default", "s") == {"k": b"two"}


def test_values_are_decoded_as_the_api_would() -> None:
    data = {"binary": base64.b64encode(b"\x00\xff").decode()}
    found, _ = daemons(
        {"kind": "Secret", "metadata": {"name": "s"}, "data": data, "stringData": {"text": "ä"}},
        {"kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "data": {"text": "x"}, "binaryData": data},
    )
    assert values_of(found, SourceKind.SECRET, "default", "s") == {"binary": b"\x00\xff", "text": "ä".encode()}
    assert values_of(found, SourceKind.CONFIG_MAP, "n", "c") == {"binary": b"\x00\xff", "text": b"x"}
    assert values_of(found, SourceKind.SECRET, "default", "other") is None


def test_a_node_selector_chooses_nodes_and_other_objects_change_nothing() -> None:
    assert daemons(changed(MINIMAL, "spec", nodeSelector={"kubernetes.io/hostname": "node-2"}))[1] == []
    assert len(daemons(changed(MINIMAL, "spec", nodeSelector=LABELS))[1]) == 1
    assert daemons({"kind": "Service", "metadata": {"name": "s"}}, {"kind": 7}, {"no": "kind"})[1] == []


def test_a_broken_object_is_logged_and_the_rest_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    for document in (
        {"kind": "Secret"},
        {"kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "*"}},
        {"kind": "DaemonSet"},
    ):
        _, pods = daemons(document, MINIMAL)
        assert len(pods) == 1
        assert "UMB831" in caplog.text


@given(st.lists(json_values(), max_size=3), st.sampled_from(["Pod", "DaemonSet", "Secret", "ConfigMap"]))
def test_whatever_lies_there_is_taken_or_logged(values: list[Any], kind: str) -> None:
    documents = [{**value, "kind": kind} if isinstance(value, dict) else value for value in values]
    found = Daemons("node-1", LABELS).read({"f": yaml.safe_dump_all(documents).encode()})
    assert all(isinstance(pod, LabPod) for pod in found.values())


def item(uid: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "name": uid, "namespace": "ns", "resourceVersion": str(version)}}


def listing(*uids: str, version: int = 1) -> Answer:
    return json_answer({"metadata": {"resourceVersion": str(version)}, "items": [item(uid) for uid in uids]})


def event(kind: str, uid: str, version: int) -> dict[str, Any]:
    return {"type": kind, "object": item(uid, version)}


async def watched(
    folder: Path, answers: list[Answer], is_enough: Callable[[PodWatch], bool], monkeypatch: Patch
) -> tuple[PodWatch, list[Request]]:
    """Watch an API that gives these answers, the last one for ever."""
    monkeypatch.setattr(api_sync, "RETRY_SECONDS", 0.01)
    rest = list(answers)

    def answer(_: Request) -> Answer:
        return rest.pop(0) if len(rest) > 1 else rest[0]

    async with ScriptedApi(answer) as server:
        async with make_client(server.write_kubeconfig(folder), qps=-1) as client, asyncio.TaskGroup() as group:
            watch = PodWatch(client, "node-1", lambda: None)
            task = group.create_task(watch.run())
            while not is_enough(watch):
                await asyncio.sleep(0.01)
            task.cancel()
        return watch, server.requests


async def test_events_change_what_the_list_said(tmp_path: Path, monkeypatch: Patch) -> None:
    events = [event("ADDED", "b", 2), event("MODIFIED", "a", 3), event("DELETED", "b", 4), event("ADDED", "c", 5)]
    answers = [listing("a"), watch_answer(*events, stays_open=True)]
    watch, requests = await watched(tmp_path, answers, lambda watch: "c" in watch.pods, monkeypatch)
    assert set(watch.pods) == {"a", "c"}
    assert watch.pods["a"]["metadata"]["resourceVersion"] == "3"
    assert requests[0].query == {"fieldSelector": "spec.nodeName=node-1"}
    assert requests[1].query["resourceVersion"] == "1"


async def test_a_watch_that_ends_goes_on_where_it_was(tmp_path: Path, monkeypatch: Patch) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
    answers = [listing("a"), watch_answer(bookmark), watch_answer(event("ADDED", "b", 10), stays_open=True)]
    _, requests = await watched(tmp_path, answers, lambda watch: "b" in watch.pods, monkeypatch)
    assert [request.query.get("resourceVersion") for request in requests] == [None, "1", "9"]


@pytest.mark.parametrize("failure", [status_answer(503, "Unavailable"), status_answer(410, "Expired"), Answer(b"x")])
async def test_after_a_failure_the_list_is_asked_for_anew_and_pods_stay_meanwhile(
    tmp_path: Path, monkeypatch: Patch, failure: Answer
) -> None:
    answers = [listing("a"), failure, failure, listing("b"), watch_answer(stays_open=True)]
    seen: list[set[str]] = []

    def look(watch: PodWatch) -> bool:
        seen.append(set(watch.pods))
        return "b" in watch.pods

    await watched(tmp_path, answers, look, monkeypatch)
    first = next(index for index, pods in enumerate(seen) if pods)
    assert set() not in seen[first:]
    assert seen[-1] == {"b"}


async def test_an_answer_to_our_change_is_kept_unless_the_pod_is_gone(tmp_path: Path, monkeypatch: Patch) -> None:
    answers = [listing("a"), watch_answer(stays_open=True)]
    watch, _ = await watched(tmp_path, answers, lambda watch: "a" in watch.pods, monkeypatch)
    watch.keep(item("a", 7))
    watch.keep(item("z", 7))
    assert {uid: pod["metadata"]["resourceVersion"] for uid, pod in watch.pods.items()} == {"a": "7"}
