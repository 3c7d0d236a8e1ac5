"""The client of the Kubernetes API: kubeconfig, credentials, pace and calls."""

import asyncio
import json
import subprocess
import sys
from datetime import UTC
from pathlib import Path

import pytest
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.manual_clock import ManualClock
from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer, status_answer, watch_answer

import peers
from umbilical.cluster.client import MESSAGE_CHARACTERS, ClientClock, Json, RateLimit, make_client
from umbilical.fault import ApiRefused, ApiUnreachable, ClusterError

real = pytest.mark.real(*PROGRAMS)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def _lease(name: str) -> Json:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}


async def _with_answer(answer: Answer, folder: Path, request_seconds: float = 10.0) -> tuple[Json, list[Request]]:
    """Send one request to an API that gives this answer."""
    async with ScriptedApi(lambda request: answer) as api:
        config = api.write_kubeconfig(folder)
        async with make_client(config, user_agent="me/1", request_seconds=request_seconds) as client:
            return await client.request("PUT", "/thing", query={"a": "b c"}, body={"x": 1}), api.requests


async def _watched(answer: Answer, folder: Path) -> list[Json]:
    async with (
        ScriptedApi(lambda request: answer) as api,
        make_client(api.write_kubeconfig(folder)) as client,
        client.watch("/watched", {"resourceVersion": "1"}) as events,
    ):
        return [event async for event in events]


async def test_a_request_carries_query_body_and_who_asks(tmp_path: Path) -> None:
    answer, requests = await _with_answer(json_answer({"ok": True}), tmp_path)
    assert answer == {"ok": True}
    (request,) = requests
    assert (request.method, request.path, request.query, request.body) == ("PUT", "/thing", {"a": "b c"}, {"x": 1})
    assert request.headers["user-agent"] == "me/1"
    assert request.headers["accept"] == "application/json"


async def test_a_refusal_of_the_api_or_of_a_proxy_has_its_fields(tmp_path: Path) -> None:
    with pytest.raises(ApiRefused) as caught:
        await _with_answer(status_answer(409, "Conflict", "it changed"), tmp_path)
    assert (caught.value.status, caught.value.reason, caught.value.message) == (409, "Conflict", "it changed")
    with pytest.raises(ApiRefused) as caught:
        await _with_answer(Answer(b"<html>" + b"x" * 5000, 502), tmp_path)
    assert (caught.value.status, caught.value.reason, len(caught.value.message)) == (502, "", MESSAGE_CHARACTERS)


async def test_an_answer_that_is_none_or_does_not_come_is_told_in_the_systems_own_words(tmp_path: Path) -> None:
    for content in (b"", b"hello", b"[]"):
        with pytest.raises(ApiUnreachable, match="is this a Kubernetes API"):
            await _with_answer(Answer(content), tmp_path)
    with pytest.raises(ApiUnreachable):
        await _with_answer(Answer(b"{", stays_open=True), tmp_path, request_seconds=0.2)
    async with ScriptedApi(lambda request: Answer()) as api:
        config = api.write_kubeconfig(tmp_path)
    async with make_client(config) as client:
        with pytest.raises(ApiUnreachable, match=r"UMB603 GET /x: the Kubernetes API did not answer(?s:.*)refused"):
            await client.request("GET", "/x")


async def test_watch_events_come_in_order_until_the_server_ends_it(tmp_path: Path) -> None:
    first: Json = {"type": "ADDED", "object": {"metadata": {"name": "a"}}}
    second: Json = {"type": "BOOKMARK", "object": {}}
    assert await _watched(watch_answer(first, second), tmp_path) == [first, second]


async def test_a_watch_that_is_refused_or_broken_says_why(tmp_path: Path) -> None:
    with pytest.raises(ApiRefused, match="Forbidden"):
        await _watched(status_answer(403, "Forbidden"), tmp_path)
    gone: Json = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    with pytest.raises(ApiRefused) as caught:
        await _watched(watch_answer(gone), tmp_path)
    assert (caught.value.status, caught.value.reason) == (410, "Expired")
    with pytest.raises(ApiUnreachable, match="had no object"):
        await _watched(watch_answer({"type": "ADDED"}), tmp_path)


async def test_a_watch_that_is_left_early_closes_its_connection(tmp_path: Path) -> None:
    event: Json = {"type": "ADDED", "object": {}}
    answer = watch_answer(event, stays_open=True)
    async with (
        ScriptedApi(lambda request: answer) as api,
        make_client(api.write_kubeconfig(tmp_path)) as client,
        client.watch("/watched", {}) as events,
    ):
        assert await anext(events) == event


def test_nothing_of_the_library_is_loaded_before_a_client_is_made() -> None:
    script = (
        "import sys, umbilical.cluster.leases, umbilical.cluster.token_review\n"
        "print([name for name in ('lightkube', 'httpx2', 'yaml', 'msgspec') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_a_certificate_that_is_none_is_reported(tmp_path: Path) -> None:
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": "AAAA"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "current-context": "c",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(content))
    with pytest.raises(ClusterError, match="UMB601"):
        make_client(path)


@real
async def test_the_real_api_creates_returns_and_deletes_an_object(plane: ControlPlane) -> None:
    async with make_client(plane.kubeconfig) as client:
        made = await client.request("POST", LEASES, body=_lease("made"))
        assert (await client.request("GET", f"{LEASES}/made"))["metadata"] == made["metadata"]
        await client.request("DELETE", f"{LEASES}/made")
        with pytest.raises(ApiRefused) as caught:
            await client.request("GET", f"{LEASES}/made")
        assert (caught.value.status, caught.value.reason) == (404, "NotFound")


@real
async def test_the_real_api_refuses_whom_rbac_does_not_know(plane: ControlPlane) -> None:
    with pytest.raises(ApiRefused, match='User "nobody" cannot list resource "leases"'):
        async with make_client(plane.make_kubeconfig("nobody")) as client:
            await client.request("GET", LEASES)


@real
async def test_the_real_api_watch_tells_what_changes(plane: ControlPlane) -> None:
    async with make_client(plane.kubeconfig) as client:
        listed = await client.request("GET", LEASES)
        query = {"resourceVersion": listed["metadata"]["resourceVersion"], "timeoutSeconds": "30"}
        async with client.watch(LEASES, query) as events:
            await client.request("POST", LEASES, body=_lease("watched"))
            added = await anext(events)
            await client.request("DELETE", f"{LEASES}/watched")
            deleted = await anext(events)
        assert [added["type"], deleted["type"]] == ["ADDED", "DELETED"]
        assert added["object"]["metadata"]["name"] == "watched"


@real
async def test_the_real_api_s_watch_goes_on_after_the_objects_that_were_there(plane: ControlPlane) -> None:
    """kube-apiserver 1.37 compresses such a watch if it may: several streams of gzip, one after the other."""
    async with make_client(plane.kubeconfig) as client:
        query = {"allowWatchBookmarks": "true", "fieldSelector": "metadata.name=late", "timeoutSeconds": "3"}
        async with client.watch(LEASES, query) as events:
            # Time for the first part, which before 1.37 has nothing in it.
            await asyncio.sleep(1)
            await client.request("POST", LEASES, body=_lease("late"))
            seen = [event["type"] async for event in events]
        await client.request("DELETE", f"{LEASES}/late")
    assert "ADDED" in seen


@real
async def test_the_real_api_is_not_trusted_with_another_authority(plane: ControlPlane, tmp_path: Path) -> None:
    content = json.loads(plane.kubeconfig.read_text())
    del content["clusters"][0]["cluster"]["certificate-authority-data"]
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(content))
    with pytest.raises(ApiUnreachable, match=r"(?i)certificate verify failed"):
        async with make_client(path) as client:
            await client.request("GET", "/version")


@real
async def test_requests_run_side_by_side(plane: ControlPlane) -> None:
    async with make_client(plane.kubeconfig) as client:
        answers = await asyncio.gather(*(client.request("GET", "/version") for _ in range(5)))
    assert {answer["gitVersion"] for answer in answers} == {peers.KUBERNETES_VERSION}


async def _acquire(limit: RateLimit, times: int) -> None:
    for _ in range(times):
        await limit.acquire()


async def test_a_burst_passes_at_once_and_then_the_rate_holds_as_in_client_go() -> None:
    for qps, burst, times, sleeps in (
        (2.0, 3, 5, [0.5, 0.5]),
        (0, 0, 11, [0.2]),  # zero is client-go's default
        (-1, 1, 100, []),  # below zero there is no limit
    ):
        time = ManualClock()
        await _acquire(RateLimit(qps, burst, time.clock()), times)
        assert time.sleeps == sleeps, qps


async def test_a_rest_fills_the_bucket_but_never_past_the_burst() -> None:
    time = ManualClock()
    limit = RateLimit(1.0, 2, time.clock())
    await _acquire(limit, 2)
    time.seconds += 100
    await _acquire(limit, 3)
    assert time.sleeps == [1.0]


async def test_those_who_wait_are_served_in_order() -> None:
    served: list[int] = []
    limit = RateLimit(1.0, 1, ManualClock().clock())

    async def one(number: int) -> None:
        await limit.acquire()
        served.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(5):
            tasks.create_task(one(number))
    assert served == [0, 1, 2, 3, 4]


async def test_the_default_clock_is_the_machines_own_in_utc() -> None:
    clock = ClientClock()
    assert clock.now().tzinfo is UTC
    before = clock.monotonic()
    await clock.sleep(0)
    assert clock.monotonic() >= before
    assert 0 <= clock.random() < 1


def test_a_refusal_is_told_with_a_remedy_that_fits() -> None:
    error = ApiRefused("GET /x", 409, "Conflict", "it changed")
    assert str(error).startswith("UMB604 GET /x: HTTP 409 Conflict\n  why: it changed\n")
    for status, remedy in ((401, "credentials"), (403, "grant"), (500, "log")):
        assert remedy in ApiRefused("GET /x", status, "", "m").remedy
