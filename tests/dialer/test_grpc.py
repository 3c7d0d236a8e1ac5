"""Answers of a server in mode grpc to a dial, and their reasons."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from tests.support import packet_messages
from tests.support.coroutines import PATIENCE_SECONDS, play
from tests.support.grpc_channel import ChannelClosed, GrpcChannel, GrpcStream
from tests.support.packet_messages import PacketType
from tests.support.scripted_frontend import Deed, silent, unix_frontend
from tests.support.scripted_peers import Channel

from umbilical.dialer import grpc_layer, reach
from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.grpc_layer import GrpcLayer, dial
from umbilical.dialer.settings import UnixServer
from umbilical.dialer.streams import Streams, layered_streams
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
        ("dial tcp 10.0.0.1:443: connect: connection refused", DialReason.REFUSED, "10.0.0.1:443"),
        ("dial tcp: lookup a.b: no such host", DialReason.NAME, "10.0.0.1:443"),
        ("No agent available", DialReason.NO_AGENT, "the-server"),
        ("agent disconnected before the dial was answered", DialReason.AGENT_LOST, "the-server"),
    ],
)
def test_an_error_in_the_answer_has_its_reason_and_its_hop(
    tmp_path: Path, error: str, reason: DialReason, hop: str
) -> None:
    trace = Trace()
    failure = failure_of(tmp_path / "s", answering(error), trace=trace)
    assert (failure.reason, failure.hop, failure.text) == (reason, hop, error)
    assert [(step.name, step.failure) for step in trace.hops] == [("dial", error)]


@pytest.mark.parametrize(
    ("status", "reason"),
    [("0", DialReason.SERVER), ("7", DialReason.FORBIDDEN), ("12", DialReason.PROTOCOL), ("14", DialReason.SERVER)],
)
def test_a_stream_that_ends_without_an_answer_has_its_reason(tmp_path: Path, status: str, reason: DialReason) -> None:
    assert failure_of(tmp_path / "s", ending(status)).reason is reason


def test_a_server_that_goes_or_is_silent_or_speaks_no_http2(tmp_path: Path) -> None:
    def goes(sock: socket.socket) -> None:
        sock.recv(1)

    def speaks_http1(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        silent(sock)

    assert failure_of(tmp_path / "goes", goes).reason is DialReason.SERVER
    assert failure_of(tmp_path / "silent", silent, 0.05).reason is DialReason.SERVER
    assert failure_of(tmp_path / "http1", speaks_http1).reason is DialReason.PROTOCOL


def test_a_dial_that_succeeds_is_one_hop(tmp_path: Path) -> None:
    trace = Trace()
    with unix_frontend(tmp_path / "s", answering("")) as path:
        play(dialled(path, PATIENCE_SECONDS, trace))
    assert [(hop.name, hop.detail, hop.failure) for hop in trace.hops] == [("dial", "10.0.0.1:443", "")]


BUFFER_BYTES: Final = 64 * 1024
MIB: Final = 1024 * 1024
Answered = Callable[[GrpcChannel, GrpcStream], None]


async def opened(path: Path) -> tuple[GrpcLayer, Streams]:
    sock = await reach.reach(UnixServer(path), PATIENCE_SECONDS)
    layer = GrpcLayer("authority", False, BUFFER_BYTES)
    streams = layered_streams(layer, BUFFER_BYTES)
    await asyncio.get_running_loop().create_connection(lambda: layer, sock=sock)
    await layer.dial("10.0.0.1:443")
    assert layer.call.answer is not None
    return layer, streams


@asynccontextmanager
async def against(path: Path, deed: Answered) -> AsyncIterator[Streams]:
    """A tunnel whose server does one thing once it has answered the dial."""

    def serve(sock: socket.socket) -> None:
        channel = Channel(sock, client_side=False)
        stream = channel.accept(PATIENCE_SECONDS)
        request = stream.receive(PATIENCE_SECONDS)
        channel.respond(stream, ())
        stream.send(packet_messages.dial_response(request.dialRequest.random, 7))
        with suppress(ChannelClosed):
            deed(channel, stream)

    with ExitStack() as frontend:
        frontend.enter_context(unix_frontend(path, serve))
        layer, streams = await opened(path)
        try:
            yield streams
        finally:
            layer.abort()
            await asyncio.to_thread(frontend.close)  # it waits for the server's thread, which waits for our end


def payloads(stream: GrpcStream) -> Iterator[bytes]:
    """Read to the client's CLOSE_REQ and answer it, or to its end."""
    while (packet := stream.receive(PATIENCE_SECONDS)) is not None:
        if packet.type == PacketType.CLOSE_REQ:
            stream.send(packet_messages.close_response(7))
            return
        yield packet.data.data


def echo_until_closed(channel: GrpcChannel, stream: GrpcStream) -> None:
    for payload in payloads(stream):
        stream.send(packet_messages.data(7, payload))


async def test_bytes_pass_and_a_goodbye_is_answered(tmp_path: Path) -> None:
    async with against(tmp_path / "s", echo_until_closed) as (reader, writer):
        writer.write(b"x" * 100_000)
        assert await reader.readexactly(100_000) == b"x" * 100_000
        writer.write(b"last words")
        writer.close()
        await writer.wait_closed()


async def test_there_is_no_end_of_one_direction(tmp_path: Path) -> None:
    async with against(tmp_path / "s", echo_until_closed) as (_, writer):
        assert not writer.can_write_eof()
        with pytest.raises(NotImplementedError):
            writer.write_eof()


async def test_the_endpoint_s_end_is_the_end(tmp_path: Path) -> None:
    def deed(channel: GrpcChannel, stream: GrpcStream) -> None:
        stream.send(packet_messages.data(7, b"all there is"))
        stream.send(packet_messages.close_response(7))
        stream.wait_for_end(PATIENCE_SECONDS)

    async with against(tmp_path / "s", deed) as (reader, writer):
        assert await reader.read() == b"all there is"
        await writer.wait_closed()
        assert writer.is_closing()
        writer.write(b"into the void")


@pytest.mark.parametrize("how", ["error", "reset", "vanish", "hang up"])
async def test_a_tunnel_that_breaks_is_an_error(tmp_path: Path, how: str) -> None:
    def deed(channel: GrpcChannel, stream: GrpcStream) -> None:
        if how == "error":
            stream.send(packet_messages.close_response(7, "read: connection reset by peer"))
        elif how == "reset":
            stream.cancel()
        elif how == "hang up":
            channel.socket.shutdown(socket.SHUT_WR)
        else:
            stream.receive(PATIENCE_SECONDS)  # the client has its answer: a socket that is closed before may lose it
            return
        stream.wait_for_end(PATIENCE_SECONDS)

    async with against(tmp_path / "s", deed) as streams:
        if how == "vanish":
            streams[1].write(b"go")
        with pytest.raises(ConnectionResetError):
            await streams[0].read()


async def test_a_writer_waits_while_the_server_grants_no_window(tmp_path: Path) -> None:
    release = threading.Event()
    taken: list[int] = []
    total: list[int] = []

    def deed(channel: GrpcChannel, stream: GrpcStream) -> None:
        release.wait(PATIENCE_SECONDS)
        taken.extend(len(payload) for payload in payloads(stream))

    async with against(tmp_path / "s", deed) as (_, writer):
        draining = None
        written = 0
        while draining is None or draining.done():
            writer.write(bytes(10_000))
            written += 10_000
            draining = asyncio.ensure_future(writer.drain())
            await asyncio.sleep(0)
        assert BUFFER_BYTES < written < 4 * 1024 * 1024
        assert writer.transport.get_write_buffer_size() <= BUFFER_BYTES + 10_000 + (1 << 16)
        release.set()
        await draining
        writer.close()
        await writer.wait_closed()
        total.append(written)
    assert [sum(taken)] == total


async def test_a_reader_that_pauses_stops_the_server_but_not_what_goes_up(tmp_path: Path) -> None:
    """Window updates and pings share the socket, so it is still read."""
    sent: list[int] = [0]
    stuck = threading.Event()
    ups: list[int] = [0]

    def deed(channel: GrpcChannel, stream: GrpcStream) -> None:
        assert isinstance(channel, Channel)
        while channel.room(stream.stream_id) > 8_500 and sent[0] < MIB:
            stream.send(packet_messages.data(7, bytes(8_000)))
            sent[0] += 8_000
            channel.catch_up()
        stuck.set()
        for payload in payloads(stream):
            ups[0] += len(payload)
        stream.wait_for_end(PATIENCE_SECONDS)

    async with against(tmp_path / "s", deed) as (reader, writer):
        assert await asyncio.to_thread(stuck.wait, PATIENCE_SECONDS)
        assert sent[0] <= BUFFER_BYTES + grpc_layer.SMALLEST_WINDOW_BYTES + 8_000
        for _ in range(100):
            writer.write(bytes(10_000))
            await writer.drain()
        while ups[0] < 1_000_000:
            await asyncio.sleep(0.001)
        assert len(await reader.readexactly(sent[0])) == sent[0]
        writer.close()
        await writer.wait_closed()


async def test_a_goodbye_without_an_answer_is_not_waited_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_layer, "FAREWELL_SECONDS", 0.05)

    def deed(channel: GrpcChannel, stream: GrpcStream) -> None:
        stream.wait_for_end(PATIENCE_SECONDS)

    ended: list[str] = []
    async with against(tmp_path / "s", deed) as (_, writer):
        writer.close()
        writer.close()
        assert writer.transport.is_closing()
        assert not ended
        await writer.wait_closed()
        ended.append("without an answer")
    assert ended == ["without an answer"]


async def test_limits_are_the_program_s_to_set(tmp_path: Path) -> None:
    async with against(tmp_path / "s", echo_until_closed) as streams:
        transport = streams[1].transport
        assert transport.get_write_buffer_limits() == (BUFFER_BYTES // 4, BUFFER_BYTES)
        transport.set_write_buffer_limits(100)
        assert transport.get_write_buffer_limits() == (25, 100)
        transport.set_write_buffer_limits(100, 10)
        assert transport.get_write_buffer_limits() == (10, 100)
        transport.set_write_buffer_limits()
        assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)
