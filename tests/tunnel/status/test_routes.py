"""Who may read the status on which address, what a request may ask for, and how a long list is written."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.support.raw_http import talking

from umbilical.tunnel.admin import ServerAdminRoutes
from umbilical.tunnel.events import EventSource
from umbilical.tunnel.http_server import HttpRequest, HttpResponse
from umbilical.tunnel.settings import ListenAddress, UnixFrontend
from umbilical.tunnel.status.routes import SLICE, StatusAccess, StatusRoutes, encode, is_local
from umbilical.tunnel.status.state import Document

ANYWHERE = ListenAddress("", 8095)
LOOPBACK = ListenAddress("127.0.0.1", 8095)
TOKEN = "s3cret-t0ken"


class Numbers:
    """A source with as many tunnels as are asked for."""

    def __init__(self) -> None:
        self.source = EventSource()

    async def document(self, most_tunnels: int, worker: str) -> Document | None:
        if worker:
            return None
        return {"kind": "ServerStatus", "tunnels": {"count": 5_000, "items": iter(range(min(most_tunnels, 5_000)))}}

    def events(self) -> EventSource:
        return self.source

    def whose(self) -> Document:
        return {"kind": "ServerStatus", "id": "s1"}


def routes(access: StatusAccess) -> StatusRoutes:
    return StatusRoutes(ServerAdminRoutes(lambda: b"up 1\n", profiling=False), Numbers(), access)


def ask(access: StatusAccess, query: str = "", host: str = "127.0.0.1:8095", **more: str) -> HttpResponse:
    request = HttpRequest(more.get("method", "GET"), "/v1/status", query, host, more.get("authorization", ""))
    return asyncio.run(routes(access).respond(request))


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.mark.parametrize(
    "place", [LOOPBACK, ListenAddress("::1", 1), ListenAddress("localhost", 1), UnixFrontend(Path("/a"))]
)
def test_this_machine_needs_nothing(place: ListenAddress | UnixFrontend) -> None:
    assert is_local(place)
    response = ask(StatusAccess(place, False, None))
    assert response.status == 200
    assert dict(response.headers) == {"Content-Type": "application/json", "Cache-Control": "no-store"}


@pytest.mark.parametrize(
    "place", [ANYWHERE, ListenAddress("10.0.0.1", 1), ListenAddress("127.example", 1), ListenAddress("0.0.0.0", 1)]
)
@pytest.mark.parametrize("has_tls", [False, True])
def test_other_addresses_are_closed_in_three_lines_and_metrics_stay_open(place: ListenAddress, has_tls: bool) -> None:
    access = StatusAccess(place, has_tls, None)
    response = ask(access)
    assert response.status == 403
    assert [line[:9] for line in response.body.decode().splitlines()] == [
        "UMB211 th",
        "  why: " + _shown(place)[:2],
        "  next: a",
    ]
    metrics = asyncio.run(routes(access).respond(HttpRequest("GET", "/metrics")))
    assert (metrics.status, metrics.body) == (200, b"up 1\n")
    unknown = asyncio.run(routes(access).respond(HttpRequest("GET", "/v1/other")))
    assert unknown.status == 404


def _shown(place: ListenAddress) -> str:
    return f"{place.host or '*'}:{place.port}"


def test_a_token_without_tls_opens_nothing(token: Path) -> None:
    assert ask(StatusAccess(ANYWHERE, False, token), authorization=f"Bearer {TOKEN}").status == 403


def test_with_tls_the_right_token_opens_it(token: Path) -> None:
    access = StatusAccess(ANYWHERE, True, token)
    assert ask(access, authorization=f"Bearer {TOKEN}").status == 200
    for wrong in ("", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer \xff"):
        response = ask(access, authorization=wrong)
        assert (response.status, dict(response.headers)["WWW-Authenticate"]) == (401, "Bearer")
        assert TOKEN not in response.body.decode()


def test_the_token_is_read_again_at_each_request(token: Path) -> None:
    access = StatusAccess(ANYWHERE, True, token)
    token.write_text("another")
    assert ask(access, authorization=f"Bearer {TOKEN}").status == 401
    assert ask(access, authorization="Bearer another").status == 200
    token.write_text("\n")
    assert ask(access, authorization="Bearer ").status == 403
    token.unlink()
    assert b"cannot be read" in ask(access, authorization="Bearer another").body


def test_a_token_counts_on_loopback_too_and_not_on_a_unix_socket(token: Path) -> None:
    assert ask(StatusAccess(LOOPBACK, False, token)).status == 401
    assert ask(StatusAccess(LOOPBACK, False, token), authorization=f"Bearer {TOKEN}").status == 200
    assert ask(StatusAccess(UnixFrontend(Path("/a")), False, token)).status == 200


@pytest.mark.parametrize("host", ["", "127.0.0.1", "127.0.0.1:8095", "localhost:8095", "[::1]:8095", "[::1]"])
def test_loopback_is_asked_for_by_its_names(host: str) -> None:
    assert ask(StatusAccess(LOOPBACK, False, None), host=host).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8095", "10.0.0.1:8095", "127.evil.example"])
def test_a_name_that_leads_to_loopback_opens_nothing(host: str) -> None:
    assert ask(StatusAccess(LOOPBACK, False, None), host=host).status == 403
    assert ask(StatusAccess(UnixFrontend(Path("/a")), False, None), host=host).status == 200


@pytest.mark.parametrize(("query", "count"), [("", 1000), ("tunnels=7", 7), ("tunnels=0", 0), ("tunnels=999999", 5000)])
def test_the_number_of_tunnels_is_limited(query: str, count: int) -> None:
    document = json.loads(ask(StatusAccess(LOOPBACK, False, None), query).body)
    assert document["tunnels"] == {"count": 5_000, "items": list(range(count))}


@pytest.mark.parametrize("query", ["tunnels=x", "tunnels=-1", "tunnels=99999999999999999999", "tunnels=%D9%A1"])
def test_what_is_not_a_number_is_refused(query: str) -> None:
    assert ask(StatusAccess(LOOPBACK, False, None), query).status == 400


def test_unknown_workers_and_methods_are_refused() -> None:
    access = StatusAccess(LOOPBACK, False, None)
    assert ask(access, "worker=3").status == 404
    assert ask(access, method="POST").status == 405


async def test_a_long_list_is_written_in_slices_between_which_others_run() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.get_running_loop().create_task(count())
    items = list(range(3 * SLICE + 1))
    octets = await encode(
        {"kind": "x", "empty": {"items": iter(())}, "tunnels": {"count": 1, "items": iter(items)}, "z": []}
    )
    assert json.loads(octets) == {"kind": "x", "empty": {"items": []}, "tunnels": {"count": 1, "items": items}, "z": []}
    assert turns >= 4
    counting.cancel()
    await asyncio.wait({counting})


async def test_the_header_arrives_over_http(token: Path) -> None:
    async with talking(routes(StatusAccess(LOOPBACK, False, token))) as client:
        await client.send(b"GET /v1/status?tunnels=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head, body = await client.reply()
        assert head.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
        assert body.startswith(b"UMB211 ")
        line = f"authorization:  Bearer {TOKEN} \r\n".encode()
        await client.send(b"GET /v1/status?tunnels=0 HTTP/1.1\r\nHost: localhost\r\n" + line + b"\r\n")
        assert (await client.reply())[0].startswith(b"HTTP/1.1 200 OK\r\n")
