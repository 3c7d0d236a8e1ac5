"""Leases of servers: written, counted, and read."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.lease_samples import LABELS, PATH, SELECTOR, at, lease, until
from tests.support.manual_clock import START, ManualClock
from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer, status_answer, watch_answer

from umbilical.cluster.client import ApiClient, Json, make_client
from umbilical.cluster.leases import NAME_PREFIX, LeaseCounter, LeasePublisher, lease_name, parse_lease, parse_owner

OWN_PATH = f"{PATH}/konnectivity-proxy-server-s1"


class _Store:
    """The few rules of the lease API, in memory; `faults` are given out first, in order, per method."""

    def __init__(self, *leases: Json) -> None:
        self.leases = {each["metadata"]["name"]: each for each in leases}
        self.faults: dict[str, list[Answer]] = {}
        self._version = 100

    def answer(self, request: Request) -> Answer:
        if self.faults.get(request.method):
            return self.faults[request.method].pop(0)
        name = request.path.removeprefix(PATH).removeprefix("/")
        match request.method:
            case "GET" if not name:
                return json_answer({"metadata": {"resourceVersion": "1"}, "items": list(self.leases.values())})
            case "GET" | "DELETE" if name not in self.leases:
                return status_answer(404, "NotFound")
            case "GET":
                return json_answer(self.leases[name])
            case "DELETE":
                return json_answer(self.leases.pop(name))
        return self._write(request)

    def _write(self, request: Request) -> Answer:
        written = request.body
        known = self.leases.get(written["metadata"]["name"], {"metadata": {}})
        if written["metadata"].get("resourceVersion") != known["metadata"].get("resourceVersion"):
            return status_answer(409, "Conflict")
        self._version += 1
        written["metadata"]["resourceVersion"] = str(self._version)
        self.leases[written["metadata"]["name"]] = written
        return json_answer(written)


class _Publishing:
    """A publisher, its API, its clock and what its observers saw."""

    def __init__(
        self,
        store: _Store,
        time: ManualClock,
        address: tuple[str, int] | None = None,
        owner: tuple[str, str] | None = None,
    ) -> None:
        self.store = store
        self.address = address
        self.owner = owner
        self.time = time
        self.listed: list[tuple[int, str, float]] = []
        self.deleted: list[tuple[int, str, float]] = []
        self.culled = 0
        self.api = ScriptedApi(store.answer)

    def publisher(self, client: ApiClient) -> LeasePublisher:
        return LeasePublisher(
            client,
            "s1",
            "kube-system",
            LABELS,
            address=self.address,
            owner=self.owner,
            on_list=lambda *seen: self.listed.append(seen),
            on_delete=lambda *seen: self.deleted.append(seen),
            on_culled=self._count,
            clock=self.time.clock(),
        )

    def did(self) -> list[tuple[str, str]]:
        return [(request.method, request.path) for request in self.api.requests]

    def _count(self) -> None:
        self.culled += 1


async def _publish(
    testbed: _Publishing, folder: Path, act: Callable[[LeasePublisher], Coroutine[Any, Any, None]]
) -> _Publishing:
    async with testbed.api, make_client(testbed.api.write_kubeconfig(folder), qps=-1) as client:
        await act(testbed.publisher(client))
    return testbed


async def _renew_twice(publisher: LeasePublisher) -> None:
    await publisher.renew()
    await publisher.renew()


def test_a_lease_is_valid_until_its_last_renewal_plus_duration() -> None:
    for spec, valid in (
        ({"renewTime": at(0), "leaseDurationSeconds": 30}, True),
        ({"renewTime": at(-30), "leaseDurationSeconds": 30}, False),
        ({"renewTime": at(-29.9), "leaseDurationSeconds": 30}, True),
        ({"acquireTime": at(-10), "leaseDurationSeconds": 30}, True),
        ({"acquireTime": at(0), "renewTime": at(-60), "leaseDurationSeconds": 30}, False),
        ({"leaseDurationSeconds": 30}, False),
        ({"renewTime": at(0)}, False),
        ({"renewTime": "yesterday", "leaseDurationSeconds": 30}, False),
        (None, False),
    ):
        assert parse_lease({"metadata": {"name": "x"}, "spec": spec}).is_valid(START) is valid


async def test_the_first_renewal_creates_and_later_ones_write_blindly_over_the_known_copy(tmp_path: Path) -> None:
    testbed = await _publish(_Publishing(_Store(), ManualClock()), tmp_path, LeasePublisher.renew)
    assert testbed.did() == [("GET", OWN_PATH), ("POST", PATH)]
    written = testbed.store.leases[lease_name("s1")]
    assert written["metadata"]["labels"] == LABELS
    assert written["spec"] == {
        "holderIdentity": "s1",
        "leaseDurationSeconds": 30,
        "renewTime": "2026-01-01T00:00:00.000000Z",
    }
    testbed = await _publish(_Publishing(_Store(), ManualClock()), tmp_path, _renew_twice)
    assert testbed.did() == [("GET", OWN_PATH), ("POST", PATH), ("PUT", OWN_PATH)]


async def test_the_address_is_published_with_every_write_and_other_annotations_stay(tmp_path: Path) -> None:
    earlier = lease(lease_name("s1"), -100)
    earlier["metadata"]["annotations"] = {"umbilical.dev/agent-address": "10.0.0.1:1", "team": "a"}
    testbed = _Publishing(_Store(earlier), ManualClock(), address=("fd00::7", 8091))
    await _publish(testbed, tmp_path, _renew_twice)
    written = testbed.store.leases[lease_name("s1")]
    assert written["metadata"]["annotations"] == {"umbilical.dev/agent-address": "[fd00::7]:8091", "team": "a"}
    assert parse_lease(written).address == ("fd00::7", 8091)


async def test_a_lease_belongs_to_the_pod_of_its_server_and_not_to_that_of_an_earlier_life(tmp_path: Path) -> None:
    earlier = lease(lease_name("s1"), -100)
    earlier["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "s1", "uid": "old"}]
    for store in (_Store(), _Store(earlier)):
        testbed = _Publishing(store, ManualClock(), owner=parse_owner("s1/c0ffee"))
        await _publish(testbed, tmp_path, LeasePublisher.renew)
        (owner,) = testbed.store.leases[lease_name("s1")]["metadata"]["ownerReferences"]
        assert owner == {"apiVersion": "v1", "kind": "Pod", "name": "s1", "uid": "c0ffee"}


@pytest.mark.parametrize("text", ["s1", "s1/", "/c0ffee", "s1/c0/ffee"])
def test_an_owner_without_name_or_uid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"not a pod's name and UID: {text}"):
        parse_owner(text)


def test_a_lease_without_an_address_is_a_lease_all_the_same() -> None:
    for annotations in (None, {}, {"umbilical.dev/agent-address": "no address"}):
        content = lease("x", 0)
        content["metadata"]["annotations"] = annotations
        assert parse_lease(content).address is None
        assert parse_lease(content).is_valid(START)


async def test_a_lease_of_an_earlier_life_is_taken_over_with_our_labels_and_its_other_content(tmp_path: Path) -> None:
    earlier = lease(lease_name("s1"), -100, {"k8s-app": "wrong", "team": "a"}, address="10.0.0.1:1")
    testbed = await _publish(_Publishing(_Store(earlier), ManualClock()), tmp_path, LeasePublisher.renew)
    assert testbed.did() == [("GET", OWN_PATH), ("PUT", OWN_PATH)]
    written = testbed.store.leases[lease_name("s1")]
    assert written["metadata"]["labels"] == {"k8s-app": "konnectivity-server", "team": "a"}
    assert parse_lease(written).is_valid(START)
    assert parse_lease(written).address is None, "a server that publishes none takes the earlier one away"


async def test_a_conflict_is_answered_by_looking_again(tmp_path: Path) -> None:
    testbed = _Publishing(_Store(), ManualClock())

    async def act(publisher: LeasePublisher) -> None:
        await publisher.renew()
        # Someone else wrote the lease meanwhile.
        testbed.store.leases[lease_name("s1")]["metadata"]["resourceVersion"] = "999"
        await publisher.renew()

    await _publish(testbed, tmp_path, act)
    assert testbed.did()[2:] == [("PUT", OWN_PATH), ("GET", OWN_PATH), ("PUT", OWN_PATH)]
    assert testbed.time.sleeps == []


async def test_five_failed_updates_lead_back_to_looking_it_up(tmp_path: Path) -> None:
    testbed = _Publishing(_Store(), ManualClock())

    async def act(publisher: LeasePublisher) -> None:
        await publisher.renew()
        testbed.store.faults["PUT"] = [status_answer(500, "InternalError")] * 5
        await publisher.renew()

    await _publish(testbed, tmp_path, act)
    assert testbed.did()[2:] == [("PUT", OWN_PATH)] * 5 + [("GET", OWN_PATH), ("PUT", OWN_PATH)]


async def test_creation_backs_off_from_a_fifth_of_a_second_to_seven(tmp_path: Path) -> None:
    testbed = _Publishing(_Store(), ManualClock())
    testbed.store.faults["GET"] = [status_answer(500, "InternalError")] * 8
    await _publish(testbed, tmp_path, LeasePublisher.renew)
    assert testbed.time.sleeps == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 7.0, 7.0])
    assert lease_name("s1") in testbed.store.leases


async def test_renewals_come_every_fifteen_seconds_plus_up_to_four_percent(tmp_path: Path) -> None:
    testbed = _Publishing(_Store(), ManualClock(chance=0.5))

    async def act(publisher: LeasePublisher) -> None:
        puts = testbed.did
        await until(lambda: puts().count(("PUT", OWN_PATH)) >= 2, publisher.run())

    await _publish(testbed, tmp_path, act)
    assert set(testbed.time.sleeps) == {15.0, 15.0 * 1.02}


async def test_the_loops_outlive_an_api_that_fails(tmp_path: Path) -> None:
    testbed = _Publishing(_Store(), ManualClock())
    testbed.store.faults["GET"] = [status_answer(503, "ServiceUnavailable")] * 6

    async def act(publisher: LeasePublisher) -> None:
        await until(lambda: bool(testbed.store.leases) and 200 in {seen[0] for seen in testbed.listed}, publisher.run())

    await _publish(testbed, tmp_path, act)
    assert (503, "ServiceUnavailable") in {seen[:2] for seen in testbed.listed}


async def test_only_expired_leases_are_collected_and_with_their_version(tmp_path: Path) -> None:
    store = _Store(lease("old", -31, version="7"), lease("young", -1))
    testbed = await _publish(_Publishing(store, ManualClock()), tmp_path, LeasePublisher.collect)
    assert set(store.leases) == {"young"}
    listing, deletion = testbed.api.requests
    assert listing.query == {"labelSelector": "k8s-app=konnectivity-server"}
    assert deletion.body["preconditions"] == {"resourceVersion": "7"}
    assert (testbed.listed, testbed.deleted, testbed.culled) == ([(200, "", 0.0)], [(200, "", 0.0)], 1)


async def test_a_deletion_that_fails_is_observed_and_counts_as_nothing(tmp_path: Path) -> None:
    for status, reason in ((409, "Conflict"), (404, "NotFound"), (500, "InternalError")):
        store = _Store(lease("old", -31))
        store.faults["DELETE"] = [status_answer(status, reason)]
        testbed = await _publish(_Publishing(store, ManualClock()), tmp_path, LeasePublisher.collect)
        assert (testbed.deleted, testbed.culled) == ([(status, reason, 0.0)], 0)


async def test_withdrawing_deletes_our_lease_or_finds_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def act(publisher: LeasePublisher) -> None:
        await publisher.renew()
        await publisher.withdraw()
        await publisher.withdraw()

    testbed = await _publish(_Publishing(_Store(), ManualClock()), tmp_path, act)
    assert testbed.store.leases == {}
    assert caplog.records == []


async def test_withdrawing_never_raises(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    testbed = _Publishing(_Store(), ManualClock())
    testbed.store.faults["DELETE"] = [status_answer(500, "InternalError")]
    await _publish(testbed, tmp_path, LeasePublisher.withdraw)
    assert "stays until it expires" in caplog.text


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


async def _counted(testbed: _Counting, folder: Path, settled: Callable[[], bool]) -> LeaseCounter:
    async with testbed.counter(folder) as counter:
        assert (counter.server_count(), counter.published_addresses()) == (None, ())
        await until(settled, counter.run())
    return counter


async def test_valid_leases_with_matching_labels_are_counted_and_without_any_the_one_that_answers(
    tmp_path: Path,
) -> None:
    leases = [lease("a", 0), lease("b", -10), lease("expired", -31), lease("other", 0, {"k8s-app": "x"})]
    testbed = _Counting([_listing(*leases)], [])
    assert (await _counted(testbed, tmp_path, lambda: bool(testbed.watched))).server_count() == 2
    assert (testbed.listed, testbed.watched) == ([(200, "", 0.0)], [(200, "", 0.0)])
    assert "labelSelector" not in testbed.api.requests[0].query
    testbed = _Counting([_listing(lease("expired", -31))], [])
    assert (await _counted(testbed, tmp_path, lambda: bool(testbed.watched))).server_count() == 1
    testbed = _Counting([status_answer(403, "Forbidden")] * 50, [])
    assert (await _counted(testbed, tmp_path, lambda: bool(testbed.listed))).server_count() == 1
    assert testbed.listed[0] == (403, "Forbidden", 0.0)


async def test_events_change_the_count(tmp_path: Path) -> None:
    events = [
        _event("ADDED", lease("b", 0, version="2")),
        _event("ADDED", lease("c", 0, version="3")),
        _event("DELETED", lease("a", 0, version="4")),
        _event("MODIFIED", lease("c", 0, {"k8s-app": "x"}, version="5")),
        _event("ADDED", lease("d", 0, version="6")),
        _event("BOOKMARK", {"metadata": {"resourceVersion": "9"}}),
    ]
    testbed = _Counting([_listing(lease("a", 0))], [watch_answer(*events)])
    assert (await _counted(testbed, tmp_path, lambda: len(testbed.watched) == 2)).server_count() == 2
    # The second watch goes on from the bookmark, without a list in between.
    assert [request.query.get("resourceVersion") for request in testbed.api.requests] == [None, "1", "9"]


async def test_a_lease_expires_by_the_clock_alone(tmp_path: Path) -> None:
    testbed = _Counting([_listing(lease("a", 0), lease("b", -20))], [])
    counter = await _counted(testbed, tmp_path, lambda: bool(testbed.watched))
    assert counter.server_count() == 2
    testbed.time.seconds += 15
    assert counter.server_count() == 1


async def test_a_version_that_is_too_old_asks_for_a_new_list(tmp_path: Path) -> None:
    gone: Json = {"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}
    testbed = _Counting([_listing(), _listing(lease("a", 0), lease("b", 0))], [watch_answer(gone)])
    assert (await _counted(testbed, tmp_path, lambda: len(testbed.listed) == 2)).server_count() == 2
    assert (410, "Expired", 0.0) in testbed.watched


async def test_the_last_good_count_and_addresses_stay_while_the_api_cannot_be_listed(tmp_path: Path) -> None:
    gone: Json = {"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}
    failures = [status_answer(500, "InternalError")] * 50
    testbed = _Counting([_listing(lease("a", 0, address="a:1"), lease("b", 0)), *failures], [watch_answer(gone)])
    counter = await _counted(testbed, tmp_path, lambda: len(testbed.listed) > 5)
    assert (counter.server_count(), counter.published_addresses()) == (2, (("a", 1),))
    assert testbed.time.sleeps[:6] == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 25.6])


async def test_failed_lists_back_off_to_half_a_minute_and_recover(tmp_path: Path) -> None:
    failures = [status_answer(500, "InternalError")] * 8
    testbed = _Counting([*failures, _listing(lease("a", 200), lease("b", 200))], [])
    assert (await _counted(testbed, tmp_path, lambda: bool(testbed.watched))).server_count() == 2
    assert testbed.time.sleeps[-1] == 30.0


async def test_addresses_are_those_of_matching_leases_in_the_order_of_their_names(tmp_path: Path) -> None:
    leases = [
        lease("b", 0, address="[fd00::7]:1"),
        lease("a", 0, address="10.0.0.9:8091"),
        lease("c", 0, address="10.0.0.9:8091"),
        lease("silent", 0),
        lease("other", 0, {"k8s-app": "x"}, address="10.0.0.66:1"),
    ]
    testbed = _Counting([_listing(*leases)], [])
    assert (await _counted(testbed, tmp_path, lambda: bool(testbed.watched))).published_addresses() == (
        ("10.0.0.9", 8091),
        ("fd00::7", 1),
    )


async def test_ids_are_those_of_valid_leases_by_their_address(tmp_path: Path) -> None:
    """The workers of one server share an address; an expired lease would be searched for without end."""
    leases = [
        lease(f"{NAME_PREFIX}s-0", 0, address="10.0.0.9:8091"),
        lease(f"{NAME_PREFIX}s-1", 0, address="10.0.0.9:8091"),
        lease(f"{NAME_PREFIX}s-2", -31, address="10.0.0.9:8091"),
        lease(f"{NAME_PREFIX}other", 0, address="10.0.0.7:8091"),
        lease(f"{NAME_PREFIX}silent", 0),
    ]
    testbed = _Counting([_listing(*leases)], [])
    assert (await _counted(testbed, tmp_path, lambda: bool(testbed.watched))).published_ids() == {
        ("10.0.0.9", 8091): {"s-0", "s-1"},
        ("10.0.0.7", 8091): {"other"},
    }


async def test_an_expired_lease_keeps_its_address_until_it_is_deleted(tmp_path: Path) -> None:
    """While the API is out of reach every lease expires, and the addresses are what could bring it back."""
    deleted = _event("DELETED", lease("b", -31, version="3"))
    testbed = _Counting(
        [_listing(lease("a", -31, address="a:1"), lease("b", -31, address="b:1"))], [watch_answer(deleted)]
    )
    assert (await _counted(testbed, tmp_path, lambda: len(testbed.watched) == 2)).published_addresses() == (("a", 1),)


async def test_every_list_and_every_event_of_a_server_is_news_and_other_leases_are_none(tmp_path: Path) -> None:
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
    testbed = _Counting([_listing(lease("a", 0))], [watch_answer(*events)])
    await _counted(testbed, tmp_path, lambda: len(testbed.watched) == 2)
    assert testbed.news == 1 + 4
