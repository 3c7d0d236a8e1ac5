"""The health and admin ports: routes, the HTTP server behind them, and request bodies."""

import asyncio
import socket
import stat
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from tests.support.daemons import get
from tests.support.file_limits import files_left, no_descriptors
from tests.support.raw_http import dial, served, talking
from tests.support.tunnel_pair import TunnelPair, upstream_pair

from umbilical.tunnel import http_server
from umbilical.tunnel.admin import (
    AgentAdminRoutes,
    AgentHealthRoutes,
    ServerAdminRoutes,
    ServerHealthRoutes,
)
from umbilical.tunnel.http_server import MAX_BODY_BYTES, HttpListener, HttpRequest, HttpResponse, HttpRoutes
from umbilical.tunnel.settings import ListenAddress, UnixFrontend


def ready() -> bool:
    return True


def unready() -> bool:
    return False


def some_metrics() -> bytes:
    return b"up 1\n"


def ask(routes: HttpRoutes, path: str, query: str = "", method: str = "GET", host: str = "h:8094") -> HttpResponse:
    return asyncio.run(http_server.answer(routes, HttpRequest(method, path, query, host)))


def headers(response: HttpResponse) -> dict[str, str]:
    return dict(response.headers)


SERVER_HEALTH = ServerHealthRoutes(ready, some_metrics, lambda: 3)
AGENT_HEALTH = AgentHealthRoutes(ready, some_metrics)
SERVER_ADMIN = ServerAdminRoutes(some_metrics, profiling=False)
AGENT_ADMIN = AgentAdminRoutes(8093, profiling=False)
PROFILING = ServerAdminRoutes(some_metrics, profiling=True)
EVERY = (SERVER_HEALTH, AGENT_HEALTH, SERVER_ADMIN, AGENT_ADMIN)


@pytest.mark.parametrize("routes", [SERVER_HEALTH, AGENT_HEALTH])
@pytest.mark.parametrize("path", ["/healthz", "/ready", "/readyz"])
def test_health_and_readiness_are_a_bare_ok(routes: HttpRoutes, path: str) -> None:
    response = ask(routes, path)
    assert (response.status, response.body) == (200, b"ok")


@pytest.mark.parametrize("path", ["/ready", "/readyz"])
def test_a_server_without_agents_is_not_ready(path: str) -> None:
    response = ask(ServerHealthRoutes(unready, some_metrics, lambda: 0), path, "verbose")
    assert (response.status, response.body) == (500, b"no connection to any proxy agent")


def test_a_server_can_report_agents_of_any_kind() -> None:
    """`/readyz` fails while no agent fits a configured strategy; `/readyz/agents` counts all agents."""
    reached = ask(ServerHealthRoutes(unready, some_metrics, lambda: 3), "/readyz/agents")
    assert (reached.status, reached.body) == (200, b"3")
    alone = ask(ServerHealthRoutes(ready, some_metrics, lambda: 0), "/readyz/agents")
    assert (alone.status, alone.body) == (500, b"no connection to any proxy agent")


@pytest.mark.parametrize("path", ["/ready", "/readyz"])
def test_an_agent_without_servers_reports_which_check_failed(path: str) -> None:
    response = ask(AgentHealthRoutes(unready, some_metrics), path)
    assert response.status == 503
    assert response.body == b"[+]ping ok\n[-]server-connected failed: no servers connected\n"


def test_an_agent_that_misses_some_servers_names_them() -> None:
    response = ask(AgentHealthRoutes(unready, some_metrics, lambda: "servers connected: 1 of 3"), "/readyz")
    assert response.body == b"[+]ping ok\n[-]server-connected failed: servers connected: 1 of 3\n"


def test_a_ready_agent_can_report_details() -> None:
    for query in ("verbose", "verbose=1", "a=b&verbose="):
        assert ask(AGENT_HEALTH, "/readyz", query).body == b"[+]ping ok\n[+]server-connected ok\ncheck passed\n"
    assert ask(AGENT_HEALTH, "/readyz", "verbosity").body == b"ok"


@pytest.mark.parametrize("routes", [SERVER_HEALTH, AGENT_HEALTH, SERVER_ADMIN])
def test_metrics_are_served_as_text(routes: HttpRoutes) -> None:
    response = ask(routes, "/metrics")
    assert response.body == b"up 1\n"
    assert headers(response)["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize(
    ("host", "location"),
    [
        ("h:8094", "//h:8093/metrics"),
        ("h", "//h:8093/metrics"),
        ("[::1]:8094", "//[::1]:8093/metrics"),
        ("127.0.0.1:8094", "//127.0.0.1:8093/metrics"),
    ],
)
def test_the_agents_admin_port_sends_scrapers_to_the_health_port(host: str, location: str) -> None:
    response = ask(AGENT_ADMIN, "/metrics", host=host)
    assert response.status == 301
    assert headers(response)["Location"] == location
    assert response.body == f'<a href="{location}">Moved Permanently</a>.\n\n'.encode()
    assert headers(ask(AGENT_ADMIN, "/metrics", "a=b", host=host))["Location"] == f"{location}?a=b"


@pytest.mark.parametrize(
    ("routes", "path"),
    [
        *((routes, path) for routes in EVERY for path in ("/", "/livez", "/healthz/", "/debug/pprof/", "/debug/pprof")),
        *((routes, path) for routes in (SERVER_ADMIN, AGENT_ADMIN) for path in ("/healthz", "/readyz")),
    ],
)
def test_unknown_paths_are_not_found_nor_is_health_at_the_admin_port(routes: HttpRoutes, path: str) -> None:
    response = ask(routes, path)
    assert (response.status, response.body) == (404, b"404 page not found\n")


@pytest.mark.parametrize(
    ("path", "clean"), [("//healthz", "/healthz"), ("/a/../healthz", "/healthz"), ("/./a//b/", "/a/b/"), ("//", "/")]
)
def test_an_unclean_path_is_redirected(path: str, clean: str) -> None:
    response = ask(SERVER_HEALTH, path, "x=<y>")
    assert (response.status, headers(response)["Location"]) == (307, f"{clean}?x=<y>")
    assert b"&lt;y&gt;" in response.body
    assert ask(SERVER_HEALTH, path, method="POST").body == b""


def test_options_of_the_server_itself_is_empty() -> None:
    assert ask(SERVER_HEALTH, "*", method="OPTIONS") == HttpResponse(200, b"", ())
    assert ask(SERVER_HEALTH, "*").status == 400


def test_profiling_answers_only_when_enabled() -> None:
    redirect = ask(PROFILING, "/debug/pprof")
    assert (redirect.status, headers(redirect)["Location"]) == (301, "/debug/pprof/")
    assert headers(ask(PROFILING, "/debug/pprof/"))["Content-Type"] == "text/html; charset=utf-8"
    assert ask(PROFILING, "/debug/pprof/nope") == HttpResponse(
        404,
        b"Unknown profile\n",
        (("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")),
    )
    assert ask(PROFILING, "/elsewhere").status == 404
    assert ask(PROFILING, "/metrics").body == b"up 1\n"


async def test_requests_follow_each_other_on_one_connection() -> None:
    async with talking(SERVER_HEALTH) as client:
        for _ in range(3):
            await client.send(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
            head, body = await client.reply()
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert body == b"ok"
        await client.send(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await client.reply())[1] == b"404 page not found\n"
        assert (await client.reply())[1] == b"up 1\n"


async def test_a_request_may_arrive_one_byte_at_a_time() -> None:
    async with talking(AGENT_HEALTH) as client:
        for octet in b"GET /readyz?verbose HTTP/1.1\r\nHost: h\r\n\r\n":
            await client.send(bytes([octet]))
            await asyncio.sleep(0)
        assert (await client.reply())[1] == b"[+]ping ok\n[+]server-connected ok\ncheck passed\n"


async def test_head_has_the_length_and_no_body() -> None:
    async with talking(SERVER_HEALTH) as client:
        await client.send(b"HEAD /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        reply = await client.rest()
        assert b"Content-Length: 2\r\n" in reply
        assert reply.endswith(b"\r\n\r\n")


async def test_an_old_client_gets_its_answer_and_the_end() -> None:
    async with talking(SERVER_HEALTH) as client:
        await client.send(b"GET http://h/healthz HTTP/1.0\r\n\r\n")
        assert (await client.rest()).endswith(b"\r\n\r\nok")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"garbage\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n"),
        (b"\x16\x03\x01\x00\x01\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nx: " + b"a" * (1 << 20), b"HTTP/1.1 431 Request Header Fields Too Large\r\n"),
    ],
)
async def test_what_is_not_http_is_refused(head: bytes, status: bytes) -> None:
    async with talking(SERVER_HEALTH) as client:
        await client.send(head)
        assert (await client.rest()).startswith(status)


async def test_stop_ends_idle_clients_and_incomplete_requests() -> None:
    async with served(SERVER_HEALTH) as listener:
        idle, half = await dial(listener), await dial(listener)
        await half.send(b"GET /hea")
        await idle.send(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
        await idle.reply()
        await listener.stop()
        await listener.stop()
        assert await idle.rest() == b""
        assert await half.rest() == b""
        with pytest.raises(ConnectionError):
            await dial(listener)
        await idle.close()
        await half.close()


async def test_many_idle_clients_do_not_block_a_probe() -> None:
    async with served(SERVER_HEALTH, max_connections=3) as listener:
        crowd = [await dial(listener) for _ in range(3)]
        for client in crowd:
            await client.send(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
            await client.reply()
        probe = await dial(listener)
        await probe.send(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await probe.reply())[1] == b"ok"
        assert await crowd[0].rest() == b""
        for client in (*crowd, probe):
            await client.close()


async def test_many_busy_clients_block_new_ones() -> None:
    async with served(SERVER_HEALTH, max_connections=1) as listener:
        busy = await dial(listener)
        await busy.send(b"GET /healthz HTTP/1.1\r\n")
        while [connection and connection.is_idle for connection in listener._connections.values()] != [False]:
            await asyncio.sleep(0.01)
        newcomer = await dial(listener)
        assert await newcomer.rest() == b""
        await busy.send(b"Host: h\r\n\r\n")
        assert (await busy.reply())[1] == b"ok"
        await busy.close()
        await newcomer.close()


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\n"])
async def test_with_the_last_files_a_probe_takes_the_place_of_an_idle_or_slow_client(sent: bytes) -> None:
    async with served(SERVER_HEALTH) as listener:
        slow = await dial(listener)
        await slow.send(sent)
        while [each and each.is_idle for each in listener._connections.values()] != [not sent]:
            await asyncio.sleep(0.01)
        with socket.socket() as probe, no_descriptors() as limit, files_left(limit + 1):
            probe.connect(("127.0.0.1", listener.port))
            assert await slow.rest() == b""
            probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
            probe.setblocking(False)
            answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(probe, 1 << 16), 60)
            assert answer.endswith(b"ok")
        await slow.close()


async def test_an_empty_host_listens_on_both_families() -> None:
    listener = HttpListener(ListenAddress("", 0), SERVER_HEALTH)
    await listener.start()
    for host in ("127.0.0.1", "::1") if socket.has_dualstack_ipv6() else ("127.0.0.1",):
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, listener.port), 60)
        writer.close()
        await writer.wait_closed()
    await listener.stop()


async def test_a_unix_socket_has_a_mode_for_its_group_and_leaves_only_its_own_file(tmp_path: Path) -> None:
    place = UnixFrontend(tmp_path / "admin.sock")
    listener, successor = HttpListener(place, SERVER_ADMIN), HttpListener(place, SERVER_ADMIN)
    await listener.start()
    assert stat.S_IMODE(place.path.stat().st_mode) == 0o770
    assert await get(place, "/metrics") == (200, "up 1\n")
    await successor.start()
    await listener.stop()
    assert await get(place, "/metrics") == (200, "up 1\n")
    await successor.stop()
    assert not place.path.exists()


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TunnelPair]:
    with upstream_pair(tmp_path_factory.mktemp("upstream"), "--enable-profiling=true") as pair:
        pair.start()
        yield pair


def fetch(port: int, method: str, target: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, target)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


TARGETS = [
    "/healthz", "/readyz", "/readyz?verbose", "/ready", "/nope", "/", "/healthz/", "//healthz", "/a/../readyz?x=y",
    "/debug/pprof", "/debug/pprof/nope",
]  # fmt: skip


@pytest.mark.real("proxy-server", "proxy-agent")
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
def test_answers_are_those_of_the_real_programs(upstream: TunnelPair, method: str) -> None:
    ports = upstream.ports
    pairs: list[tuple[int, HttpRoutes]] = [
        (ports.server_health, SERVER_HEALTH),
        (ports.server_admin, PROFILING),
        (ports.agent_health, AGENT_HEALTH),
        (ports.agent_admin, AgentAdminRoutes(ports.agent_health, profiling=True)),
    ]
    for port, routes in pairs:
        for target in [*TARGETS, *(["/metrics?a=b"] if port == ports.agent_admin else [])]:
            theirs, body = fetch(port, method, target)
            path, _, query = target.partition("?")
            mine = ask(routes, path, query, method, f"127.0.0.1:{port}")
            assert (mine.status, headers(mine).get("Location")) == (theirs.status, theirs.getheader("Location")), target
            assert headers(mine).get("Content-Type") == theirs.getheader("Content-Type"), target
            assert body == (b"" if method == "HEAD" else mine.body), target


async def test_a_post_is_answered_and_its_body_skipped() -> None:
    async with talking(SERVER_HEALTH) as client:
        await client.send(b"POST /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n")
        assert (await client.reply())[1] == b"ok"
        await client.send(b"abcGET /readyz HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await client.reply())[1] == b"ok"


async def test_a_huge_body_ends_the_connection() -> None:
    async with talking(SERVER_HEALTH) as client:
        await client.send(b"POST /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n")
        assert (await client.reply())[1] == b"ok"
        await client.send(b"x" * (MAX_BODY_BYTES + 65536))
        assert await client.rest() == b""


async def test_a_body_may_follow_requests_without_one_and_come_in_chunks() -> None:
    async with talking(SERVER_HEALTH) as client:
        await client.send(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await client.reply())[1] == b"ok"
        chunked = b"POST /readyz HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        await client.send(chunked + b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        assert (await client.reply())[1] == b"ok"
        assert (await client.rest()).endswith(b"up 1\n")


@pytest.mark.parametrize(
    "body",
    [
        b"not a size\r\n",
        b"\r\n",
        b"0x1\r\na\r\n0\r\n\r\n",
        b"1\na\n0\n\n",
        b"1\r\nab\r\n0\r\n\r\n",
        b"123456789\r\n",
        b"5\r\nab",
    ],
)
async def test_a_malformed_or_cut_body_ends_the_connection_after_the_answer(body: bytes) -> None:
    async with talking(SERVER_HEALTH) as client:
        await client.send(b"POST /healthz HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
        await client.finish()
        assert (await client.rest()).endswith(b"\r\n\r\nok")


async def test_chunks_may_have_extensions_and_trailers_and_arrive_byte_by_byte() -> None:
    async with talking(SERVER_HEALTH) as client:
        request = b"POST /healthz HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        for octet in request + b"A ;x=y\r\n0123456789\r\n0\r\nx: y\r\n\r\n":
            await client.send(bytes([octet]))
            await asyncio.sleep(0)
        assert (await client.reply())[1] == b"ok"
        await client.send(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await client.reply())[1] == b"up 1\n"


async def test_two_different_lengths_are_refused() -> None:
    async with talking(SERVER_HEALTH) as client:
        await client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
        assert (await client.rest()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
