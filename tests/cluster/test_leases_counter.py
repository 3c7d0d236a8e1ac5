"""The counter on a clock of our own, against an API that says what it is told."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.cluster.lease_scenes import SELECTOR, lease, until
from tests.support.manual_clock import ManualClock
from tests.support.scripted_api import (
    Answer,
    Request,
    ScriptedApi,
    json_answer,
    run_async,
    status_answer,
    watch_answer,
)

from umbilical.cluster.client import Json, make_client
from umbilical.cluster.leases import LeaseCounter


class _Counting:
    """A counter, its API and its clock; lists and watches are answered in the given order, then held open."""

    def __init__(self, lists: list[Answer], watches: list[Answer]) -> None:
        self.time = ManualClock()
        self.listed: list[tuple[int, str, float]] = []
        self.watched: list[tuple[int, str, float]] = []
        self.news = 0
        self.api = ScriptedApi(self._answer)
        self._lists, self._watches = lists, watches

    @asynccontextmanager
    async def counter(self, folder: Path) -> AsyncIterator[LeaseCounter]:
        async with self.api, make_client(self.api.write_kubeconfig(folder), qps=-1) as client:
            yield LeaseCounter(
                client,
                "kube-system",
                SELECTOR,
                on_list=lambda *seen: self.listed.append(seen),
                on_watch=lambda *seen: self.watched.append(seen),
                on_change=self._hear,
                clock=self.time.clock(),
            )

    def _hear(self) -> None:
        self.news += 1

    def _answer(self, request: Request) -> Answer:
        if "watch" in request.query:
            return self._watches.pop(0) if self._watches else watch_answer(stays_open=True)
        return self._lists.pop(0)


def _listing(*leases: Json, version: str = "1") -> Answer:
    return json_answer({"metadata": {"resourceVersion": version}, "items": list(leases)})


def _event(kind: str, lease: Json) -> Json:
    return {"type": kind, "object": lease}


def _count(scene: _Counting, folder: Path, settled: Callable[[], bool]) -> int | None:
    async def scenario() -> int | None:
        async with scene.counter(folder) as counter:
            await until(settled, counter.run())
            return counter.server_count()

    return run_async(scenario())


def test_nothing_is_known_before_the_api_was_asked(tmp_path: Path) -> None:
    async def scenario() -> int | None:
        async with _Counting([], []).counter(tmp_path) as counter:
            return counter.server_count()

    assert run_async(scenario()) is None


def test_valid_leases_with_matching_labels_are_counted(tmp_path: Path) -> None:
    leases = [lease("a", 0), lease("b", -10), lease("expired", -31), lease("other", 0, {"k8s-app": "x"})]
    scene = _Counting([_listing(*leases)], [])
    assert _count(scene, tmp_path, lambda: bool(scene.watched)) == 2
    assert (scene.listed, scene.watched) == ([(200, "", 0.0)], [(200, "", 0.0)])
    assert "labelSelector" not in scene.api.requests[0].query


def test_without_a_valid_lease_there_is_the_one_server_that_answers(tmp_path: Path) -> None:
    scene = _Counting([_listing(lease("expired", -31))], [])
    assert _count(scene, tmp_path, lambda: bool(scene.watched)) == 1


def test_a_failed_first_list_counts_one(tmp_path: Path) -> None:
    scene = _Counting([status_answer(403, "Forbidden")] * 50, [])
    assert _count(scene, tmp_path, lambda: bool(scene.listed)) == 1
    assert scene.listed[0] == (403, "Forbidden", 0.0)


def test_events_change_the_count(tmp_path: Path) -> None:
    events = [
        _event("ADDED", lease("b", 0, version="2")),
        _event("ADDED", lease("c", 0, version="3")),
        _event("DELETED", lease("a", 0, version="4")),
        _event("MODIFIED", lease("c", 0, {"k8s-app": "x"}, version="5")),
        _event("ADDED", lease("d", 0, version="6")),
        _event("BOOKMARK", {"metadata": {"resourceVersion": "9"}}),
    ]
    scene = _Counting([_listing(lease("a", 0))], [watch_answer(*events)])
    assert _count(scene, tmp_path, lambda: len(scene.watched) == 2) == 2
    # The second watch goes on from the bookmark, without a list in between.
    assert [request.query.get("resourceVersion") for request in scene.api.requests] == [None, "1", "9"]


def test_a_lease_expires_by_the_clock_alone(tmp_path: Path) -> None:
    scene = _Counting([_listing(lease("a", 0), lease("b", -20))], [])

    async def scenario() -> list[int | None]:
        async with scene.counter(tmp_path) as counter:
            await until(lambda: bool(scene.watched), counter.run())
            before = counter.server_count()
            scene.time.seconds += 15
            return [before, counter.server_count()]

    assert run_async(scenario()) == [2, 1]


def test_a_version_that_is_too_old_asks_for_a_new_list(tmp_path: Path) -> None:
    gone: Json = {"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}
    scene = _Counting([_listing(), _listing(lease("a", 0), lease("b", 0))], [watch_answer(gone)])
    assert _count(scene, tmp_path, lambda: len(scene.listed) == 2) == 2
    assert (410, "Expired", 0.0) in scene.watched


def test_the_last_good_value_stays_while_the_api_cannot_be_listed(tmp_path: Path) -> None:
    gone: Json = {"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}
    failures = [status_answer(500, "InternalError")] * 50
    scene = _Counting([_listing(lease("a", 0), lease("b", 0)), *failures], [watch_answer(gone)])
    assert _count(scene, tmp_path, lambda: len(scene.listed) > 5) == 2
    assert scene.time.sleeps[:6] == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 25.6])


def test_failed_lists_back_off_to_half_a_minute_and_recover(tmp_path: Path) -> None:
    failures = [status_answer(500, "InternalError")] * 8
    scene = _Counting([*failures, _listing(lease("a", 200), lease("b", 200))], [])
    assert _count(scene, tmp_path, lambda: bool(scene.watched)) == 2
    assert scene.time.sleeps[-1] == 30.0


# ---------------------------------------------------------------------- addresses


def _addresses(scene: _Counting, folder: Path, settled: Callable[[], bool]) -> tuple[tuple[str, int], ...]:
    async def scenario() -> tuple[tuple[str, int], ...]:
        async with scene.counter(folder) as counter:
            assert counter.published_addresses() == ()
            await until(settled, counter.run())
            return counter.published_addresses()

    return run_async(scenario())


def test_addresses_are_those_of_matching_leases_in_the_order_of_their_names(tmp_path: Path) -> None:
    leases = [
        lease("b", 0, address="[fd00::7]:1"),
        lease("a", 0, address="10.0.0.9:8091"),
        lease("c", 0, address="10.0.0.9:8091"),
        lease("silent", 0),
        lease("other", 0, {"k8s-app": "x"}, address="10.0.0.66:1"),
    ]
    scene = _Counting([_listing(*leases)], [])
    assert _addresses(scene, tmp_path, lambda: bool(scene.watched)) == (("10.0.0.9", 8091), ("fd00::7", 1))


def test_an_expired_lease_keeps_its_address_until_it_is_deleted(tmp_path: Path) -> None:
    """While the API is out of reach every lease expires, and the addresses are what could bring it back."""
    deleted = _event("DELETED", lease("b", -31, version="3"))
    scene = _Counting(
        [_listing(lease("a", -31, address="a:1"), lease("b", -31, address="b:1"))], [watch_answer(deleted)]
    )
    assert _addresses(scene, tmp_path, lambda: len(scene.watched) == 2) == (("a", 1),)


def test_addresses_are_kept_while_the_api_cannot_be_listed(tmp_path: Path) -> None:
    gone: Json = {"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}
    failures = [status_answer(500, "InternalError")] * 50
    scene = _Counting([_listing(lease("a", 0, address="a:1")), *failures], [watch_answer(gone)])
    assert _addresses(scene, tmp_path, lambda: len(scene.listed) > 5) == (("a", 1),)


def test_every_list_and_every_event_of_a_server_is_news_and_other_leases_are_none(tmp_path: Path) -> None:
    others = {"k8s-app": "x"}
    events = [
        _event("ADDED", lease("b", 0, version="2", address="b:1")),
        _event("MODIFIED", lease("b", 1, version="3", address="b:2")),
        _event("MODIFIED", lease("scheduler", 1, others, version="4")),
        _event("DELETED", lease("scheduler", 1, others, version="5")),
        _event("DELETED", lease("b", 1, version="6")),
        _event("MODIFIED", lease("a", 1, others, version="7")),
        _event("BOOKMARK", {"metadata": {"resourceVersion": "9"}}),
    ]
    scene = _Counting([_listing(lease("a", 0))], [watch_answer(*events)])
    _addresses(scene, tmp_path, lambda: len(scene.watched) == 2)
    assert scene.news == 1 + 4
