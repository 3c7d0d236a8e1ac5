"""Hostile peers at both doors of a server: they are cut off, keep nothing, and nobody else notices."""

import logging
import socket
import ssl
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import hpack
import pytest
from tests.support.in_process import RunningServer, Stage, echo
from tests.support.scripted_peers import CONNECT_PATH, open_agent_channel
from tests.support.tunnel_client import receive_exactly
from tests.wire.http2.ends import frame, greeting

from umbilical.tunnel.agent_transport import MAX_CONNECT_STREAMS, MAX_UNCLAIMED_STREAMS
from umbilical.tunnel.settings import UnixFrontend
from umbilical.wire import packet_data
from umbilical.wire.http2 import frames
from umbilical.wire.http2.headers import encode_plain

PATIENCE_SECONDS = 60.0
REQUEST = [(b":method", b"POST"), (b":scheme", b"https"), (b":authority", b"x")]
MIB = 1024 * 1024


class Stranger:
    """Sends raw frames at one of the doors."""

    def __init__(self, server: RunningServer, door: str) -> None:
        self.sock: Final = _agents_door(server) if door == "agents" else _clients_door(server)
        self.sock.settimeout(PATIENCE_SECONDS)
        server.stage.leftovers.callback(self.sock.close)

    def send_until_cut(self, octets: Iterable[bytes]) -> None:
        try:
            self.sock.sendall(greeting())
            for piece in octets:
                self.sock.sendall(piece)
        except OSError:
            pass  # cut off, as it should be

    def reads_goaway(self) -> int | None:
        """Read to the end; return the code of GOAWAY, or None if it was lost with the socket, since we did not read."""
        received = bytearray()
        try:
            while piece := self.sock.recv(65536):
                received += piece
        except (ConnectionError, ssl.SSLError):  # reset, or cut without the end of TLS
            return None
        place = received.rfind(frames.ENHANCE_YOUR_CALM.to_bytes(4, "big") + b"too many streams")
        return int.from_bytes(received[place : place + 4], "big") if place > 0 else None


def _agents_door(server: RunningServer) -> socket.socket:
    pki = server.stage.pki
    tcp = socket.create_connection(("127.0.0.1", server.agent_port), timeout=PATIENCE_SECONDS)
    return pki.authority.client_context(pki.agent, ["h2"]).wrap_socket(tcp, server_hostname="127.0.0.1")


def _clients_door(server: RunningServer) -> socket.socket:
    frontend = server.settings.frontend
    assert isinstance(frontend, UnixFrontend)
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(frontend.path))
    return sock


def headers(stream_id: int, block: bytes, flags: int = 0) -> bytes:
    return frame(frames.HEADERS, frames.END_HEADERS | flags, stream_id, block)


def header_bomb() -> Iterator[bytes]:
    """One path of 3 KB in the header table; each call after the first refers to it with one byte."""
    encoder = hpack.Encoder()
    call = [*REQUEST, (b":path", b"/" + b"x" * 3000)]
    for number in range(1, 36_001, 2):
        yield headers(number, encoder.encode(call))


def rapid_resets() -> Iterator[bytes]:
    block = hpack.Encoder().encode([*REQUEST, (b":path", b"/ProxyService/Proxy")])
    for number in range(1, 12_001, 2):
        yield headers(number, block) + frames.reset_frame(number, frames.CANCEL)


@pytest.mark.parametrize("door", ["agents", "clients"])
@pytest.mark.parametrize("attack", [header_bomb, rapid_resets])
def test_a_flood_of_calls_is_cut_and_others_are_served(
    stage: Stage, caplog: pytest.LogCaptureFixture, attack: Callable[[], Iterator[bytes]], door: str
) -> None:
    server, _ = stage.start_pair("grpc")
    tunnel = server.frontend.dial(stage.endpoint().serve(echo).address).finish()
    stranger = Stranger(server, door)
    with caplog.at_level(logging.INFO):
        stranger.send_until_cut(attack())
        tunnel.send(b"still here")
        assert receive_exactly(tunnel, 10) == b"still here"
        assert stranger.reads_goaway() in (frames.ENHANCE_YOUR_CALM, None)
    assert len(caplog.records) < 20, "a refused peer costs few log lines"
    tunnel.close()


def test_answers_that_a_stranger_does_not_read_are_bounded(stage: Stage) -> None:
    server, _ = stage.start_pair("grpc")
    tracemalloc.start()
    try:
        Stranger(server, "agents").send_until_cut(header_bomb())
        stage.eventually(lambda: len(server.server.core.transports) == 1, seconds=20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * MIB


def test_nothing_of_refused_calls_is_kept(stage: Stage) -> None:
    server = stage.start_server("grpc")
    paths = [b"/%03d" % number + b"x" * 40_000 for number in range(300)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for door in ("agents", "clients"):
            stranger = Stranger(server, door)
            calls = [encode_plain([*REQUEST, (b":path", path)]) for path in paths]
            octets = [
                frame(frames.HEADERS, 0, 2 * place + 1, call[:16_000])
                + frame(frames.CONTINUATION, 0, 2 * place + 1, call[16_000:32_000])
                + frame(frames.CONTINUATION, frames.END_HEADERS, 2 * place + 1, call[32_000:])
                for place, call in enumerate(calls)
            ]
            stranger.send_until_cut(octets)
            stranger.sock.close()
            del calls, octets
        stage.eventually(lambda: not server.server.core.transports)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 2 * MIB


def test_an_agent_with_many_connect_streams_is_refused_beyond_a_few(stage: Stage) -> None:
    server = stage.start_server()
    channel = open_agent_channel(server)
    streams = [
        channel.open(CONNECT_PATH, [("agentid", f"many-{number}"), ("agentidentifiers", "")])
        for number in range(MAX_CONNECT_STREAMS + 1)
    ]
    assert streams[-1].ended_with()["grpc-status"] == "8"
    assert server.gauges().connect_streams == MAX_CONNECT_STREAMS


def test_streams_for_tunnels_that_nobody_asked_for_are_bounded(stage: Stage) -> None:
    server = stage.start_server()
    stranger = Stranger(server, "agents")
    hello = [(b"agentid", b"hostile"), (b"umbilical-streams", b"1")]
    connect = encode_plain([*REQUEST, (b":path", CONNECT_PATH.encode()), *hello])
    block = encode_plain(packet_data.OPENING_HEADERS)
    calls = (headers(number, block) for number in range(3, 4 * MAX_UNCLAIMED_STREAMS, 2))
    stranger.send_until_cut([headers(1, connect), *calls])
    stage.eventually(lambda: not server.server.core.transports)
