"""The route to one server: its hops in a trace, its session from dial to dial, its failures by name."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.support.coroutines import play
from tests.support.data_plane import Diary
from tests.support.dialer_testbed import client_files, end, server_of
from tests.support.in_process import Stage, banner
from tests.support.live_certificates import LiveFiles
from tests.support.scripted_frontend import answering, silent, tcp_frontend, unix_frontend
from tests.support.tls_contexts import server_context
from tests.support.tunnel_pair import free_port
from tests.support.tunnel_pki import FolderAuthority, TunnelPki

from umbilical.dialer import tls_layer
from umbilical.dialer.dialer import TunnelRoute
from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.settings import DialerSettings, Protocol, TcpServer, UnixServer
from umbilical.dialer.tls_layer import Scratch, watched_context
from umbilical.dialer.trace import Hop, Trace
from umbilical.fault import StartupError
from umbilical.tunnel.exposition import Exposition
from umbilical.tunnel.metrics import CertificateMetrics
from umbilical.tunnel.settings import TlsFiles

OK = b"HTTP/1.1 200 Connection Established\r\n\r\n"


def route_to(pki: TunnelPki, server: UnixServer | TcpServer, **more: Any) -> TunnelRoute:
    values: dict[str, Any] = {"servers": (server,), "tls": client_files(pki)} | more
    settings = DialerSettings(**values)
    return TunnelRoute(server, settings, watched_context(settings, CertificateMetrics()), Scratch())


async def failed(route: TunnelRoute, trace: Trace | None = None) -> DialFailed:
    with pytest.raises(DialFailed) as caught:
        await route.open("10.0.0.1:1", trace)
    return caught.value


def failure_of(route: TunnelRoute, trace: Trace | None = None) -> DialFailed:
    return play(failed(route, trace))


@pytest.mark.parametrize("mode", ["http-connect", "grpc"])
@pytest.mark.parametrize("tcp", [False, True])
def test_every_hop_is_traced_and_sessions_are_resumed(stage: Stage, mode: str, tcp: bool) -> None:
    server, _ = stage.start_pair(mode, tcp=tcp)
    endpoint = stage.endpoint().serve(banner)
    route = route_to(stage.pki, server_of(server.frontend), protocol=Protocol(mode))

    async def script() -> list[str]:
        details = []
        for _ in range(3):
            trace = Trace()
            reader, writer = await route.open(endpoint.address, trace)
            assert await reader.readexactly(8) == b"BANNER\r\n"
            await end(writer)
            agent = ["agent"] if mode == "http-connect" else []
            assert [hop.name for hop in trace.hops] == ["connect", *(["tls"] if tcp else []), *agent, "dial"]
            details += [hop.detail for hop in trace.hops if hop.name == "tls"]
        return details

    details = play(script())
    assert details == (["TLSv1.3, full handshake", "TLSv1.3, resumed", "TLSv1.3, resumed"] if tcp else [])


def test_a_new_context_resumes_nothing_of_the_old(tunnel_pki: TunnelPki) -> None:
    with tcp_frontend(answering(OK), server_context(tunnel_pki)) as port:
        route = route_to(tunnel_pki, TcpServer("127.0.0.1", port))

        async def script() -> list[str]:
            details = []
            for _ in range(2):
                trace = Trace()
                _, writer = await route.open("10.0.0.1:1", trace)
                writer.transport.abort()
                details.append(trace.hops[1].detail)
                assert route._watched is not None
                route._watched._loaded = watched_context(route._settings, CertificateMetrics())._loaded  # type: ignore
            await asyncio.sleep(0)
            return details

        assert play(script()) == ["TLSv1.3, full handshake"] * 2


def test_the_name_in_the_certificate_is_the_server_s_or_the_one_that_was_told(
    tunnel_pki: TunnelPki, tmp_path: Path
) -> None:
    authority = tunnel_pki.authority
    context = authority.server_context(authority.serving("elsewhere", ["konnectivity-server.clusters"]))
    with tcp_frontend(answering(OK), context) as port:
        failure = failure_of(route_to(tunnel_pki, TcpServer("127.0.0.1", port)))
        assert failure.reason is DialReason.TLS
        assert "IP address mismatch" in failure.text

        async def script() -> None:
            route = route_to(tunnel_pki, TcpServer("127.0.0.1", port, "konnectivity-server.clusters"))
            _, writer = await route.open("10.0.0.1:1", None)
            await end(writer)

        play(script())


def test_a_server_of_another_ca_and_a_client_of_another_ca_are_both_tls(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    stranger = FolderAuthority(tmp_path)
    trace = Trace()
    with tcp_frontend(answering(OK), stranger.server_context(stranger.serving("s"))) as port:
        failure = failure_of(route_to(tunnel_pki, TcpServer("127.0.0.1", port)), trace)
    assert failure.reason is DialReason.TLS
    assert "certificate verification failed" in failure.text
    assert [(hop.name, bool(hop.failure)) for hop in trace.hops] == [("connect", False), ("tls", True)]

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tunnel_pki.server.certificate, tunnel_pki.server.key)
    context.load_verify_locations(stranger.certificate_file)
    context.verify_mode = ssl.CERT_REQUIRED
    with tcp_frontend(answering(OK), context) as port:
        failure = failure_of(route_to(tunnel_pki, TcpServer("127.0.0.1", port)))
    assert failure.reason is DialReason.TLS
    assert "unknown ca" in failure.text


def test_a_server_that_is_not_there_or_goes_or_stays_silent_is_named(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    trace = Trace()
    failure = failure_of(route_to(tunnel_pki, UnixServer(tmp_path / "none")), trace)
    assert (failure.reason, failure.hop) == (DialReason.SERVER, f"unix:{tmp_path}/none")
    assert [(hop.name, hop.failure) for hop in trace.hops] == [("connect", "no such file or directory")]
    port = free_port()
    failure = failure_of(route_to(tunnel_pki, TcpServer("127.0.0.1", port)))
    assert (failure.reason, failure.hop) == (DialReason.SERVER, f"127.0.0.1:{port}")

    def goes(sock: socket.socket) -> None:
        sock.recv(1 << 16)

    with tcp_frontend(goes) as port:
        failure = failure_of(route_to(tunnel_pki, TcpServer("127.0.0.1", port)))
    assert failure.reason is DialReason.SERVER
    assert "during the TLS handshake" in failure.text

    with tcp_frontend(silent) as port:
        failure = failure_of(route_to(tunnel_pki, TcpServer("127.0.0.1", port), tls_seconds=0.05))
    assert failure.reason is DialReason.SERVER
    assert "no TLS handshake within 0.05 s" in failure.text

    for protocol in Protocol:
        with unix_frontend(tmp_path / protocol.value, silent) as path:
            failure = failure_of(route_to(tunnel_pki, UnixServer(path), reply_seconds=0.05, protocol=protocol))
        assert failure.reason is DialReason.SERVER
        assert "neither the server nor its agent answered" in failure.text


@pytest.mark.parametrize("tcp", [False, True])
@pytest.mark.parametrize("protocol", Protocol)
def test_a_dial_that_is_cancelled_leaves_no_socket(
    tunnel_pki: TunnelPki, tmp_path: Path, protocol: Protocol, tcp: bool
) -> None:
    def script(route: TunnelRoute) -> None:
        async def cancelled() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await route.open("10.0.0.1:1", None)
            await asyncio.sleep(0)

        play(cancelled())

    if tcp:
        with tcp_frontend(silent, server_context(tunnel_pki)) as port:
            script(route_to(tunnel_pki, TcpServer("127.0.0.1", port), protocol=protocol))
    else:
        with unix_frontend(tmp_path / "s", silent) as path:
            script(route_to(tunnel_pki, UnixServer(path), protocol=protocol))


def test_each_protocol_s_server_tells_a_client_of_the_other_apart(stage: Stage) -> None:
    connect, grpc = stage.start_server("http-connect"), stage.start_server("grpc")
    for server, protocol in ((connect, Protocol.GRPC), (grpc, Protocol.HTTP_CONNECT)):
        assert server.frontend.unix_path is not None
        route = route_to(stage.pki, UnixServer(server.frontend.unix_path), protocol=protocol)
        assert failure_of(route).reason is DialReason.PROTOCOL


def test_hops_come_in_order_and_sum_up() -> None:
    trace = Trace()
    trace.begin("unix:/s")
    trace.add("connect", 0.25, "unix:/s")
    trace.add("dial", 0.5, "10.0.0.1:1")
    assert trace.hops == [Hop("connect", 0.25, "unix:/s"), Hop("dial", 0.5, "10.0.0.1:1")]
    assert trace.seconds == 0.75
    assert (trace.server, trace.passed_over) == ("unix:/s", [])


def test_the_next_server_begins_anew_and_leaves_a_line_of_the_last() -> None:
    trace = Trace()
    trace.begin("one:1")
    trace.add("connect", 0.1, "one:1", "connection refused")
    trace.begin("two:2")
    trace.add("connect", 0.2, "two:2")
    assert trace.passed_over == ["one:1: connection refused"]
    assert trace.hops == [Hop("connect", 0.2, "two:2")]


SERVERS = (TcpServer("127.0.0.1", 1),)


def test_the_context_verifies_and_is_no_older_than_tls_1_2(tunnel_pki: TunnelPki) -> None:
    watched = tls_layer.watched_context(DialerSettings(SERVERS, client_files(tunnel_pki)), CertificateMetrics())
    assert watched is not None
    context = watched.context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize("protocol", Protocol)
def test_files_that_cannot_be_used_are_told_at_the_start(
    tunnel_pki: TunnelPki, tmp_path: Path, protocol: Protocol
) -> None:
    good = client_files(tunnel_pki)
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing of use")
    for files, code in (
        (TlsFiles(good.certificate, tunnel_pki.agent.key, good.authority), "UMB020"),
        (TlsFiles(good.certificate, good.key, bad), "UMB021"),
        (TlsFiles(good.certificate, tmp_path / "none", good.authority), "UMB022"),
        (TlsFiles(good.certificate, good.key, None), "UMB022"),
    ):
        with pytest.raises(StartupError) as caught:
            tls_layer.watched_context(DialerSettings(SERVERS, files, protocol), CertificateMetrics())
        assert caught.value.code == code


def test_changed_files_are_used_and_bad_ones_are_not(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    live = LiveFiles(tmp_path / "live")
    live.install(tunnel_pki.client, tunnel_pki.authority)
    metrics = CertificateMetrics()
    watched = tls_layer.watched_context(DialerSettings(SERVERS, live.files), metrics)
    assert watched is not None
    before = watched.context()
    assert set(metrics.expiry) == {("client", "certificate"), ("client", "ca")}

    live.key.write_text("half written")
    watched.look()
    assert watched.context() is before

    (tmp_path / "other").mkdir()
    other = FolderAuthority(tmp_path / "other")
    live.install(other.client("fresh"), other)
    watched.look()
    assert watched.context() is not before
    out = Exposition()
    metrics.render(out)
    assert b'umbilical_certificate_reloads_total{role="client",result="success"} 1' in out.render()


async def test_timers_fire_once_unless_cancelled() -> None:
    clock, wanted, unwanted = tls_layer.AsyncioClock(), Diary(), Diary()
    before = clock.now
    cancelled = clock.after(0.0, unwanted)
    clock.cancel(cancelled)
    clock.cancel(cancelled)
    fired = clock.after(0.0, wanted)
    while not wanted.lines:
        await asyncio.sleep(0.001)
    clock.cancel(fired)
    assert (len(wanted.lines), unwanted.lines) == (1, [])
    assert clock.now >= before
