"""The route to an endpoint: hops, TLS, failures, pings."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from tests.hosted.conftest import Tunnel, access_to
from tests.support.in_process import Stage, refused_address
from tests.support.tls_listener import Deed, hangs_up, listener, plain_text, says_nothing, swallows
from tests.support.tunnel_pair import free_port
from tests.support.tunnel_pki import FolderAuthority

from umbilical.dialer.settings import Protocol, TcpServer, UnixServer
from umbilical.dialer.trace import Hop
from umbilical.fault import HostedError
from umbilical.hosted.access import TunnelAccess
from umbilical.hosted.endpoint_tls import EndpointTls, TlsFacts, endpoint_context
from umbilical.hosted.http_call import CHUNK_BYTES, Pipe, TlsPipe
from umbilical.hosted.route import (
    EndpointRoute,
    PingFailure,
    PingPace,
    PingResult,
    PingSpread,
    RouteEndpoint,
    distinct_failures,
    ping,
    summarize,
)
from umbilical.tunnel.settings import TlsFiles

SECONDS = 60.0


def trips_to(access: TunnelAccess, address: str, *, count: int = 1, tls: EndpointTls | None = None) -> list[PingResult]:
    host, _, port = address.rpartition(":")
    results: list[PingResult] = []

    async def scenario() -> None:
        async with asyncio.timeout(2 * SECONDS):
            await ping(
                EndpointRoute(access, RouteEndpoint(host, int(port), tls), SECONDS),
                PingPace(count, 0.0),
                results.append,
            )

    asyncio.run(scenario())
    return results


def shown_by(facts: TlsFacts | None) -> str:
    """Return the common name of the certificate, marked if it was not verified."""
    certificate = facts.certificate if facts else None
    return f"{certificate.common_name if certificate else None}{'' if facts and facts.is_verified else ', unverified'}"


def authority_in(folder: Path, name: str = "endpoint-ca") -> FolderAuthority:
    (folder / name).mkdir()
    return FolderAuthority(folder / name, name)


def test_every_hop_is_timed_and_the_agent_is_named(tunnel: Tunnel) -> None:
    results = trips_to(tunnel.access, tunnel.stage.endpoint().address, count=2)
    assert [result.sequence for result in results] == [1, 2]
    for result in results:
        assert result.is_ok
        assert [hop.name for hop in result.hops] == ["connect", "tls", "agent", "dial"]
        assert all(hop.seconds >= 0 for hop in result.hops)
        assert (result.agent, shown_by(result.server)) == ("agent-0", "proxy-server")


def test_a_unix_socket_has_no_tls_hop(stage: Stage) -> None:
    server, _ = stage.start_pair()
    assert server.frontend.unix_path is not None
    (result,) = trips_to(TunnelAccess(UnixServer(server.frontend.unix_path), TlsFiles()), stage.endpoint().address)
    assert result.is_ok
    assert [hop.name for hop in result.hops] == ["connect", "agent", "dial"]
    assert result.server is None


def where(failure: PingFailure | None) -> tuple[str, str] | None:
    return None if failure is None else (failure.hop, failure.code)


def failed(access: TunnelAccess, address: str = "127.0.0.1:1", tls: EndpointTls | None = None) -> PingFailure:
    (result,) = trips_to(access, address, tls=tls)
    assert result.failure is not None
    return result.failure


def test_a_server_that_is_away_or_not_ours_or_not_for_us_fails_at_its_own_hop(tunnel: Tunnel) -> None:
    assert isinstance(tunnel.access.server, TcpServer)
    failure = failed(replace(tunnel.access, server=TcpServer("127.0.0.1", free_port())))
    assert (failure.hop, failure.code, failure.reason) == ("connect", "UMB507", "server")
    assert "refused" in failure.why
    failure = failed(replace(tunnel.access, server=TcpServer("127.0.0.1", tunnel.access.server.port, "somebody-else")))
    assert where(failure) == ("tls", "UMB508")
    assert "somebody-else" in failure.why
    # Without a certificate the refusal comes only after the handshake.
    failure = failed(replace(tunnel.access, tls=TlsFiles(authority=tunnel.access.tls.authority)))
    assert where(failure) == ("tls", "UMB508")


def test_a_server_of_another_authority_fails_at_tls_and_its_certificate_shows(tunnel: Tunnel, tmp_path: Path) -> None:
    files = tunnel.access.tls
    other = TlsFiles(files.certificate, files.key, authority_in(tmp_path, "other").certificate_file)
    (result,) = trips_to(replace(tunnel.access, tls=other), "127.0.0.1:1")
    assert where(result.failure) == ("tls", "UMB508")
    assert shown_by(result.server) == "proxy-server, unverified"


def test_a_server_without_agents_fails_at_the_dial(stage: Stage) -> None:
    server = stage.start_server(tcp=True)
    failure = failed(access_to(stage, server.frontend.port))
    assert where(failure) == ("dial", "UMB505")


def test_an_endpoint_that_refuses_fails_at_the_dial(tunnel: Tunnel) -> None:
    results = trips_to(tunnel.access, refused_address(), count=2)
    assert [where(result.failure) for result in results] == [("dial", "UMB501")] * 2
    assert results[0].failure == results[1].failure


def test_the_endpoints_certificate_is_shown_unverified_without_an_authority(tunnel: Tunnel, tmp_path: Path) -> None:
    authority = authority_in(tmp_path)
    with listener(says_nothing(authority.server_context(authority.serving("webhook")))) as port:
        (result,) = trips_to(tunnel.access, f"127.0.0.1:{port}", tls=EndpointTls(TlsFiles(), is_verified=False))
    assert result.is_ok
    assert [hop.name for hop in result.hops][-1] == "endpoint tls"
    assert (shown_by(result.endpoint), shown_by(result.server)) == ("webhook, unverified", "proxy-server")


def test_the_endpoint_is_verified_by_the_given_authority_and_shown_ours(tunnel: Tunnel, tmp_path: Path) -> None:
    authority = authority_in(tmp_path)
    context = authority.server_context(authority.serving("webhook", ["127.0.0.1", "webhook.svc"]))
    context.load_verify_locations(authority.certificate_file)
    context.verify_mode = ssl.CERT_REQUIRED
    client = authority.client("caller")
    files = TlsFiles(client.certificate, client.key, authority.certificate_file)
    with listener(says_nothing(context)) as port:
        for name in ("", "webhook.svc"):
            (result,) = trips_to(tunnel.access, f"127.0.0.1:{port}", tls=EndpointTls(files, name))
            assert result.is_ok
            assert shown_by(result.endpoint) == "webhook"


def test_an_endpoint_of_another_authority_fails_and_its_certificate_is_told(tunnel: Tunnel, tmp_path: Path) -> None:
    authority = authority_in(tmp_path)
    stranger = authority_in(tmp_path, "stranger")
    files = TlsFiles(authority=stranger.certificate_file)
    with listener(says_nothing(authority.server_context(authority.serving("webhook")))) as port:
        (result,) = trips_to(tunnel.access, f"127.0.0.1:{port}", tls=EndpointTls(files))
    assert result.failure is not None
    assert (result.failure.hop, result.failure.code) == ("endpoint tls", "UMB574")
    assert "CN=webhook" in result.failure.why
    assert "signed by endpoint-ca" in result.failure.why
    assert "this certificate" in result.failure.remedy
    assert shown_by(result.endpoint) == "webhook, unverified"


def test_an_endpoint_that_speaks_no_tls_or_hangs_up_fails_there(tunnel: Tunnel) -> None:
    unverified = EndpointTls(TlsFiles(), is_verified=False)
    with listener(plain_text) as port:
        failure = failed(tunnel.access, f"127.0.0.1:{port}", unverified)
    assert where(failure) == ("endpoint tls", "UMB574")
    assert "speaks TLS" in failure.remedy
    with listener(lambda client: client.close()) as port:
        assert failed(tunnel.access, f"127.0.0.1:{port}", unverified).hop == "endpoint tls"


def test_an_endpoint_that_hangs_up_behind_the_handshake_was_reached(tunnel: Tunnel, tmp_path: Path) -> None:
    authority = authority_in(tmp_path)
    with listener(hangs_up(authority.server_context(authority.serving("webhook")))) as port:
        (result,) = trips_to(tunnel.access, f"127.0.0.1:{port}", tls=EndpointTls(TlsFiles(), is_verified=False))
    assert result.is_ok


def test_files_for_the_endpoint_that_cannot_be_used_are_told_before_a_dial(tunnel: Tunnel, tmp_path: Path) -> None:
    broken = tmp_path / "broken.crt"
    broken.write_text("no certificate")
    with pytest.raises(HostedError, match="UMB577"):
        EndpointRoute(tunnel.access, RouteEndpoint("127.0.0.1", 1, EndpointTls(TlsFiles(authority=broken))), SECONDS)


def test_a_grpc_server_is_pinged_too(stage: Stage) -> None:
    server, _ = stage.start_pair("grpc", tcp=True)
    access = replace(access_to(stage, server.frontend.port), protocol=Protocol.GRPC)
    (result,) = trips_to(access, stage.endpoint().address)
    assert result.is_ok, result.failure
    assert result.server is not None


def test_an_ipv6_endpoint_is_reached_and_written_in_brackets(tunnel: Tunnel) -> None:
    with listener(plain_text, "::1") as port:
        (result,) = trips_to(tunnel.access, f"::1:{port}")
    assert result.is_ok, result.failure
    assert str(RouteEndpoint("::1", port)) == f"[::1]:{port}"


REFUSED = PingFailure("dial", "UMB501", "refused", "what", "why", "next")
LOST = PingFailure("connect", "UMB507", "server", "what", "why", "next")


def result(number: int, connect: float, dial: float, failure: PingFailure | None = None) -> PingResult:
    return PingResult(number, (Hop("connect", connect), Hop("agent", 0.0, "a1"), Hop("dial", dial)), failure)


def test_times_are_least_mean_and_most_of_what_did_not_fail() -> None:
    summary = summarize([result(1, 1.0, 2.0), result(2, 3.0, 4.0)])
    assert summary.hops["connect"] == PingSpread(1.0, 2.0, 3.0)
    assert summary.hops["dial"] == PingSpread(2.0, 3.0, 4.0)
    assert summary.hops["total"] == PingSpread(3.0, 5.0, 7.0)
    assert "endpoint tls" not in summary.hops
    assert (summary.sent, summary.ok, summary.lost, summary.loss_percent) == (2, 2, 0, 0.0)
    summary = summarize([result(1, 1.0, 2.0), result(2, 3.0, 60.0, REFUSED)])
    assert summary.hops["dial"] == PingSpread(2.0, 2.0, 2.0)
    assert summary.hops["connect"] == PingSpread(1.0, 2.0, 3.0)
    assert summary.hops["total"] == PingSpread(3.0, 3.0, 3.0)
    assert (summary.lost, summary.loss_percent) == (1, 50.0)
    summary = summarize([])
    assert (summary.sent, summary.loss_percent, summary.hops) == (0, 0.0, {})


def test_the_agent_is_known_when_told_and_every_failure_is_told_once() -> None:
    assert result(1, 1.0, 1.0).agent == "a1"
    assert PingResult(1, (Hop("connect", 1.0), Hop("dial", 1.0))).agent is None
    assert result(1, 1.0, 1.0).hop("tls") is None
    results = [
        result(1, 1.0, 1.0, REFUSED),
        result(2, 1.0, 1.0),
        result(3, 1.0, 1.0, LOST),
        result(4, 1.0, 1.0, REFUSED),
    ]
    assert distinct_failures(results) == [REFUSED, LOST]


def test_nothing_of_a_ping_stays_open(tunnel: Tunnel) -> None:
    host, _, port = tunnel.stage.endpoint().address.rpartition(":")
    asyncio.run(
        ping(EndpointRoute(tunnel.access, RouteEndpoint(host, int(port)), SECONDS), PingPace(2, 0.0), lambda _: None)
    )
    tunnel.stage.servers[0].wait_until_quiet()
    tunnel.stage.agents[0].wait_until_idle()


async def test_the_next_begins_an_interval_after_the_last_began(tunnel: Tunnel) -> None:
    loop_times: list[float] = []
    host, _, port = tunnel.stage.endpoint().address.rpartition(":")

    def tell(_: PingResult) -> None:
        loop_times.append(asyncio.get_running_loop().time())

    began = asyncio.get_running_loop().time()
    await ping(EndpointRoute(tunnel.access, RouteEndpoint(host, int(port)), SECONDS), PingPace(2, 0.3), tell)
    loop_times.insert(0, began)
    assert loop_times[2] - loop_times[0] >= 0.3


ResultT = TypeVar("ResultT")


@pytest.fixture
def authority(tmp_path: Path) -> FolderAuthority:
    return FolderAuthority(tmp_path)


def echoes(client: socket.socket) -> None:
    while octets := client.recv(1 << 16):
        client.sendall(octets)


def over_tls(context: ssl.SSLContext, deed: Deed) -> Deed:
    def served(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as secure:
            deed(secure)
            secure.unwrap()

    return served


def with_pipe(port: int, make: Callable[..., Pipe], act: Callable[[Pipe], Awaitable[ResultT]]) -> ResultT:
    async def scenario() -> ResultT:
        async with asyncio.timeout(SECONDS):
            pipe = make(await asyncio.open_connection("127.0.0.1", port))
            try:
                return await act(pipe)
            finally:
                pipe.close()

    return asyncio.run(scenario())


async def exchange(pipe: Pipe, size: int) -> bytes:
    """Send and receive concurrently: an echo server stops reading when its output is not read."""
    received = bytearray()

    async def receive() -> None:
        while len(received) < size:
            octets = await pipe.read()
            assert octets
            received.extend(octets)

    async with asyncio.TaskGroup() as group:
        group.create_task(receive())
        group.create_task(pipe.write(bytes(range(256)) * (size // 256)))
    return bytes(received)


def test_bytes_go_both_ways_without_tls() -> None:
    with listener(echoes) as port:
        assert with_pipe(port, Pipe, lambda pipe: exchange(pipe, 1024)) == bytes(range(256)) * 4


def test_bytes_go_both_ways_inside_tls_past_one_chunk(authority: FolderAuthority) -> None:
    context = endpoint_context(EndpointTls(TlsFiles(authority=authority.certificate_file)))
    size = 3 * CHUNK_BYTES

    async def act(pipe: Pipe) -> bytes:
        assert isinstance(pipe, TlsPipe)
        facts = await pipe.handshake(SECONDS)
        assert facts.version in ("TLSv1.2", "TLSv1.3")
        assert facts.is_verified
        return await exchange(pipe, size)

    server = authority.server_context(authority.serving("echo"))
    with listener(over_tls(server, echoes)) as port:
        echoed = with_pipe(port, lambda streams: TlsPipe(streams, context, "127.0.0.1"), act)
    assert echoed == bytes(range(256)) * (size // 256)


def test_the_endpoints_farewell_is_the_end(authority: FolderAuthority) -> None:
    context = endpoint_context(EndpointTls(TlsFiles(), is_verified=False))

    async def act(pipe: Pipe) -> list[bytes]:
        assert isinstance(pipe, TlsPipe)
        await pipe.handshake(SECONDS)
        return [await pipe.read(), await pipe.read()]

    server = authority.server_context(authority.serving("farewell"))
    with listener(over_tls(server, lambda client: client.sendall(b"last words"))) as port:
        assert with_pipe(port, lambda streams: TlsPipe(streams, context, "x"), act) == [b"last words", b""]


def test_a_handshake_that_nobody_answers_is_given_up() -> None:
    context = endpoint_context(EndpointTls(TlsFiles(), is_verified=False))

    async def act(pipe: Pipe) -> None:
        assert isinstance(pipe, TlsPipe)
        with pytest.raises(TimeoutError):
            await pipe.handshake(0.01)

    with listener(swallows) as port:
        with_pipe(port, lambda streams: TlsPipe(streams, context, "x"), act)


def test_an_end_without_a_farewell_is_an_error(authority: FolderAuthority) -> None:
    context = endpoint_context(EndpointTls(TlsFiles(), is_verified=False))

    def cut(client: socket.socket) -> None:
        server = authority.server_context(authority.serving("cut"))
        secure = server.wrap_socket(client, server_side=True)
        secure.sendall(b"half")
        secure.close()

    async def act(pipe: Pipe) -> bytes:
        assert isinstance(pipe, TlsPipe)
        await pipe.handshake(SECONDS)
        first = await pipe.read()
        with pytest.raises(OSError):
            await pipe.read()
        return first

    with listener(cut) as port:
        assert with_pipe(port, lambda streams: TlsPipe(streams, context, "x"), act) == b"half"
