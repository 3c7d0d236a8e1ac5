"""What a server in mode grpc may answer to a dial, and the reason that each answer is."""

import asyncio
import socket
from pathlib import Path

import pytest
from tests.support import packet_messages
from tests.support.dialer_scene import PATIENCE_SECONDS, play
from tests.support.grpc_channel import GrpcChannel
from tests.support.scripted_frontend import Deed, silent, unix_frontend

from umbilical.dialer import reach
from umbilical.dialer.failure import DialFailed, Reason
from umbilical.dialer.grpc_dial import dial
from umbilical.dialer.grpc_layer import GrpcLayer
from umbilical.dialer.settings import UnixServer
from umbilical.dialer.trace import Trace


async def dialled(path: Path, seconds: float, trace: Trace | None) -> None:
    sock = await reach.reach(UnixServer(path), PATIENCE_SECONDS)
    layer = GrpcLayer("authority", False, 1 << 16)
    await asyncio.get_running_loop().create_connection(lambda: layer, sock=sock)
    try:
        await dial(layer, "the-server", "10.0.0.1:443", seconds, trace)
    finally:
        layer.abort()
        await asyncio.sleep(0)


def failure_of(path: Path, deed: Deed, seconds: float = PATIENCE_SECONDS, trace: Trace | None = None) -> DialFailed:
    with unix_frontend(path, deed), pytest.raises(DialFailed) as caught:
        play(dialled(path, seconds, trace))
    return caught.value


def answering(error: str) -> Deed:
    def deed(sock: socket.socket) -> None:
        channel = GrpcChannel(sock, client_side=False)
        stream = channel.accept(PATIENCE_SECONDS)
        request = stream.receive(PATIENCE_SECONDS)
        channel.respond(stream, ())
        stream.send(packet_messages.dial_response(request.dialRequest.random, 0 if error else 7, error))
        stream.wait_for_end(PATIENCE_SECONDS)

    return deed


def ending(status: str) -> Deed:
    def deed(sock: socket.socket) -> None:
        channel = GrpcChannel(sock, client_side=False)
        stream = channel.accept(PATIENCE_SECONDS)
        trailers = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", status)]
        channel.http2.send_headers(stream.stream_id, trailers, end_stream=True)
        channel.flush()
        while sock.recv(1 << 16):
            pass

    return deed


@pytest.mark.parametrize(
    ("error", "reason", "hop"),
    [
        ("dial tcp 10.0.0.1:443: connect: connection refused", Reason.REFUSED, "10.0.0.1:443"),
        ("dial tcp: lookup a.b: no such host", Reason.NAME, "10.0.0.1:443"),
        ("No agent available", Reason.NO_AGENT, "the-server"),
        ("agent disconnected before the dial was answered", Reason.AGENT_LOST, "the-server"),
    ],
)
def test_an_error_in_the_answer_has_its_reason_and_its_hop(
    tmp_path: Path, error: str, reason: Reason, hop: str
) -> None:
    trace = Trace()
    failure = failure_of(tmp_path / "s", answering(error), trace=trace)
    assert (failure.reason, failure.hop, failure.text) == (reason, hop, error)
    assert [(step.name, step.failure) for step in trace.hops] == [("dial", error)]


@pytest.mark.parametrize(
    ("status", "reason"),
    [("0", Reason.SERVER), ("7", Reason.FORBIDDEN), ("12", Reason.PROTOCOL), ("14", Reason.SERVER)],
)
def test_a_stream_that_ends_without_an_answer_has_its_reason(tmp_path: Path, status: str, reason: Reason) -> None:
    assert failure_of(tmp_path / "s", ending(status)).reason is reason


def test_a_server_that_goes_or_is_silent_or_speaks_no_http2(tmp_path: Path) -> None:
    def goes(sock: socket.socket) -> None:
        sock.recv(1)

    def speaks_http1(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        silent(sock)

    assert failure_of(tmp_path / "goes", goes).reason is Reason.SERVER
    assert failure_of(tmp_path / "silent", silent, 0.05).reason is Reason.SERVER
    assert failure_of(tmp_path / "http1", speaks_http1).reason is Reason.PROTOCOL


def test_a_dial_that_succeeds_is_one_hop(tmp_path: Path) -> None:
    trace = Trace()
    with unix_frontend(tmp_path / "s", answering("")) as path:
        play(dialled(path, PATIENCE_SECONDS, trace))
    assert [(hop.name, hop.detail, hop.failure) for hop in trace.hops] == [("dial", "10.0.0.1:443", "")]
