"""The publisher on a clock of our own, against an API that fails on purpose."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.lease_scenes import LABELS, PATH, at, lease, until
from tests.support.manual_clock import START, ManualClock
from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer, run_async, status_answer

from umbilical.cluster.client import ApiClient, Json, make_client
from umbilical.cluster.leases import LeasePublisher, lease_name, parse_lease

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

    def __init__(self, store: _Store, time: ManualClock, address: tuple[str, int] | None = None) -> None:
        self.store = store
        self.address = address
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
            on_list=lambda *seen: self.listed.append(seen),
            on_delete=lambda *seen: self.deleted.append(seen),
            on_culled=self._count,
            clock=self.time.clock(),
        )

    def did(self) -> list[tuple[str, str]]:
        return [(request.method, request.path) for request in self.api.requests]

    def _count(self) -> None:
        self.culled += 1


def _publish(
    scene: _Publishing, folder: Path, act: Callable[[LeasePublisher], Coroutine[Any, Any, None]]
) -> _Publishing:
    async def scenario() -> None:
        async with scene.api, make_client(scene.api.write_kubeconfig(folder), qps=-1) as client:
            await act(scene.publisher(client))

    run_async(scenario())
    return scene


async def _renew_twice(publisher: LeasePublisher) -> None:
    await publisher.renew()
    await publisher.renew()


@pytest.mark.parametrize(
    ("spec", "valid"),
    [
        ({"renewTime": at(0), "leaseDurationSeconds": 30}, True),
        ({"renewTime": at(-30), "leaseDurationSeconds": 30}, False),
        ({"renewTime": at(-29.9), "leaseDurationSeconds": 30}, True),
        ({"acquireTime": at(-10), "leaseDurationSeconds": 30}, True),
        ({"acquireTime": at(0), "renewTime": at(-60), "leaseDurationSeconds": 30}, False),
        ({"leaseDurationSeconds": 30}, False),
        ({"renewTime": at(0)}, False),
        ({"renewTime": "yesterday", "leaseDurationSeconds": 30}, False),
        (None, False),
    ],
)
def test_a_lease_is_valid_until_its_last_renewal_plus_duration(spec: Json | None, valid: bool) -> None:
    assert parse_lease({"metadata": {"name": "x"}, "spec": spec}).is_valid(START) is valid


def test_the_first_renewal_looks_and_then_creates(tmp_path: Path) -> None:
    scene = _publish(_Publishing(_Store(), ManualClock()), tmp_path, LeasePublisher.renew)
    assert scene.did() == [("GET", OWN_PATH), ("POST", PATH)]
    written = scene.store.leases[lease_name("s1")]
    assert written["metadata"]["labels"] == LABELS
    assert written["spec"] == {
        "holderIdentity": "s1",
        "leaseDurationSeconds": 30,
        "renewTime": "2026-01-01T00:00:00.000000Z",
    }


def test_the_address_is_published_with_every_write_and_other_annotations_stay(tmp_path: Path) -> None:
    earlier = lease(lease_name("s1"), -100)
    earlier["metadata"]["annotations"] = {"umbilical.dev/agent-address": "10.0.0.1:1", "team": "a"}
    scene = _Publishing(_Store(earlier), ManualClock(), address=("fd00::7", 8091))
    _publish(scene, tmp_path, _renew_twice)
    written = scene.store.leases[lease_name("s1")]
    assert written["metadata"]["annotations"] == {"umbilical.dev/agent-address": "[fd00::7]:8091", "team": "a"}
    assert parse_lease(written).address == ("fd00::7", 8091)


def test_the_address_of_an_earlier_life_is_taken_away(tmp_path: Path) -> None:
    earlier = lease(lease_name("s1"), -100)
    earlier["metadata"]["annotations"] = {"umbilical.dev/agent-address": "10.0.0.1:1"}
    scene = _publish(_Publishing(_Store(earlier), ManualClock()), tmp_path, LeasePublisher.renew)
    assert parse_lease(scene.store.leases[lease_name("s1")]).address is None


@pytest.mark.parametrize("annotations", [None, {}, {"umbilical.dev/agent-address": "no address"}])
def test_a_lease_without_an_address_is_a_lease_all_the_same(annotations: Json | None) -> None:
    content = lease("x", 0)
    content["metadata"]["annotations"] = annotations
    assert parse_lease(content).address is None
    assert parse_lease(content).is_valid(START)


def test_later_renewals_write_blindly_over_the_known_copy(tmp_path: Path) -> None:
    scene = _publish(_Publishing(_Store(), ManualClock()), tmp_path, _renew_twice)
    assert scene.did() == [("GET", OWN_PATH), ("POST", PATH), ("PUT", OWN_PATH)]


def test_a_lease_of_an_earlier_life_is_taken_over_with_our_labels_and_its_other_content(tmp_path: Path) -> None:
    earlier = lease(lease_name("s1"), -100, {"k8s-app": "wrong", "team": "a"})
    scene = _publish(_Publishing(_Store(earlier), ManualClock()), tmp_path, LeasePublisher.renew)
    assert scene.did() == [("GET", OWN_PATH), ("PUT", OWN_PATH)]
    written = scene.store.leases[lease_name("s1")]
    assert written["metadata"]["labels"] == {"k8s-app": "konnectivity-server", "team": "a"}
    assert parse_lease(written).is_valid(START)


def test_a_conflict_is_answered_by_looking_again(tmp_path: Path) -> None:
    scene = _Publishing(_Store(), ManualClock())

    async def act(publisher: LeasePublisher) -> None:
        await publisher.renew()
        # Someone else wrote the lease meanwhile.
        scene.store.leases[lease_name("s1")]["metadata"]["resourceVersion"] = "999"
        await publisher.renew()

    _publish(scene, tmp_path, act)
    assert scene.did()[2:] == [("PUT", OWN_PATH), ("GET", OWN_PATH), ("PUT", OWN_PATH)]
    assert scene.time.sleeps == []


def test_five_failed_updates_lead_back_to_looking_it_up(tmp_path: Path) -> None:
    scene = _Publishing(_Store(), ManualClock())

    async def act(publisher: LeasePublisher) -> None:
        await publisher.renew()
        scene.store.faults["PUT"] = [status_answer(500, "InternalError")] * 5
        await publisher.renew()

    _publish(scene, tmp_path, act)
    assert scene.did()[2:] == [("PUT", OWN_PATH)] * 5 + [("GET", OWN_PATH), ("PUT", OWN_PATH)]


def test_creation_backs_off_from_a_fifth_of_a_second_to_seven(tmp_path: Path) -> None:
    scene = _Publishing(_Store(), ManualClock())
    scene.store.faults["GET"] = [status_answer(500, "InternalError")] * 8
    _publish(scene, tmp_path, LeasePublisher.renew)
    assert scene.time.sleeps == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 7.0, 7.0])
    assert lease_name("s1") in scene.store.leases


def test_renewals_come_every_fifteen_seconds_plus_up_to_four_percent(tmp_path: Path) -> None:
    scene = _Publishing(_Store(), ManualClock(chance=0.5))

    async def act(publisher: LeasePublisher) -> None:
        puts = scene.did
        await until(lambda: puts().count(("PUT", OWN_PATH)) >= 2, publisher.run())

    _publish(scene, tmp_path, act)
    assert set(scene.time.sleeps) == {15.0, 15.0 * 1.02}


def test_the_loops_outlive_an_api_that_fails(tmp_path: Path) -> None:
    scene = _Publishing(_Store(), ManualClock())
    scene.store.faults["GET"] = [status_answer(503, "ServiceUnavailable")] * 6

    async def act(publisher: LeasePublisher) -> None:
        await until(lambda: bool(scene.store.leases) and 200 in {seen[0] for seen in scene.listed}, publisher.run())

    _publish(scene, tmp_path, act)
    assert (503, "ServiceUnavailable") in {seen[:2] for seen in scene.listed}


def test_only_expired_leases_are_collected_and_with_their_version(tmp_path: Path) -> None:
    store = _Store(lease("old", -31, version="7"), lease("young", -1))
    scene = _publish(_Publishing(store, ManualClock()), tmp_path, LeasePublisher.collect)
    assert set(store.leases) == {"young"}
    listing, deletion = scene.api.requests
    assert listing.query == {"labelSelector": "k8s-app=konnectivity-server"}
    assert deletion.body["preconditions"] == {"resourceVersion": "7"}
    assert (scene.listed, scene.deleted, scene.culled) == ([(200, "", 0.0)], [(200, "", 0.0)], 1)


@pytest.mark.parametrize(("status", "reason"), [(409, "Conflict"), (404, "NotFound"), (500, "InternalError")])
def test_a_deletion_that_fails_is_observed_and_counts_as_nothing(status: int, reason: str, tmp_path: Path) -> None:
    store = _Store(lease("old", -31))
    store.faults["DELETE"] = [status_answer(status, reason)]
    scene = _publish(_Publishing(store, ManualClock()), tmp_path, LeasePublisher.collect)
    assert (scene.deleted, scene.culled) == ([(status, reason, 0.0)], 0)


def test_withdrawing_deletes_our_lease_and_an_absent_one_is_fine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(publisher: LeasePublisher) -> None:
        await publisher.renew()
        await publisher.withdraw()
        await publisher.withdraw()

    scene = _publish(_Publishing(_Store(), ManualClock()), tmp_path, act)
    assert scene.store.leases == {}
    assert caplog.records == []


def test_withdrawing_never_raises(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scene = _Publishing(_Store(), ManualClock())
    scene.store.faults["DELETE"] = [status_answer(500, "InternalError")]
    _publish(scene, tmp_path, LeasePublisher.withdraw)
    assert "stays until it expires" in caplog.text
