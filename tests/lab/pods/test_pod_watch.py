"""Pods of a node by list and watch, through breaks of either."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.scripted_api import (
    Answer,
    Request,
    ScriptedApi,
    json_answer,
    run_async,
    status_answer,
    watch_answer,
)

from umbilical.cluster.client import make_client
from umbilical.lab.pods import pod_watch
from umbilical.lab.pods.pod_watch import PodWatch


def item(uid: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "name": uid, "namespace": "ns", "resourceVersion": str(version)}}


def listing(*uids: str, version: int = 1) -> Answer:
    return json_answer({"metadata": {"resourceVersion": str(version)}, "items": [item(uid) for uid in uids]})


def event(kind: str, uid: str, version: int) -> dict[str, Any]:
    return {"type": kind, "object": item(uid, version)}


def watched(
    folder: Path, answers: list[Answer], is_enough: Callable[[PodWatch], bool], monkeypatch: pytest.MonkeyPatch
) -> tuple[PodWatch, list[Request]]:
    """Watch an API that gives these answers, the last one for ever."""
    monkeypatch.setattr(pod_watch, "RETRY_SECONDS", 0.01)
    rest = list(answers)

    async def run() -> tuple[PodWatch, list[Request]]:
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

    return run_async(run())


def test_events_change_what_the_list_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [event("ADDED", "b", 2), event("MODIFIED", "a", 3), event("DELETED", "b", 4), event("ADDED", "c", 5)]
    answers = [listing("a"), watch_answer(*events, stays_open=True)]
    watch, requests = watched(tmp_path, answers, lambda watch: "c" in watch.pods, monkeypatch)
    assert set(watch.pods) == {"a", "c"}
    assert watch.pods["a"]["metadata"]["resourceVersion"] == "3"
    assert requests[0].query == {"fieldSelector": "spec.nodeName=node-1"}
    assert requests[1].query["resourceVersion"] == "1"


def test_a_watch_that_ends_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
    answers = [listing("a"), watch_answer(bookmark), watch_answer(event("ADDED", "b", 10), stays_open=True)]
    _, requests = watched(tmp_path, answers, lambda watch: "b" in watch.pods, monkeypatch)
    assert [request.query.get("resourceVersion") for request in requests] == [None, "1", "9"]


@pytest.mark.parametrize("failure", [status_answer(503, "Unavailable"), status_answer(410, "Expired"), Answer(b"x")])
def test_after_a_failure_the_list_is_asked_for_anew_and_pods_stay_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Answer
) -> None:
    answers = [listing("a"), failure, failure, listing("b"), watch_answer(stays_open=True)]
    seen: list[set[str]] = []

    def look(watch: PodWatch) -> bool:
        seen.append(set(watch.pods))
        return "b" in watch.pods

    watched(tmp_path, answers, look, monkeypatch)
    first = next(index for index, pods in enumerate(seen) if pods)
    assert set() not in seen[first:]
    assert seen[-1] == {"b"}


def test_an_answer_to_a_change_of_ours_is_kept_unless_the_pod_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [listing("a"), watch_answer(stays_open=True)]
    watch, _ = watched(tmp_path, answers, lambda watch: "a" in watch.pods, monkeypatch)
    watch.keep(item("a", 7))
    watch.keep(item("z", 7))
    assert {uid: pod["metadata"]["resourceVersion"] for uid, pod in watch.pods.items()} == {"a": "7"}
