"""A layer forwards data from below to a reader, or to another protocol."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.support.coroutines import play
from tests.support.dialer_testbed import dialer_for, open_at
from tests.support.https_endpoint import web_server
from tests.support.in_process import Stage
from tests.support.scripted_frontend import until_end
from tests.support.tunnel_pki import FolderAuthority

from umbilical.dialer import streams
from umbilical.dialer.streams import Layer

layered = pytest.mark.parametrize(("mode", "tcp"), [("http-connect", True), ("grpc", False), ("grpc", True)])


class Below(asyncio.Transport):
    """A transport that keeps a record."""

    def __init__(self) -> None:
        super().__init__({"peername": "far"})
        self.calls: list[str] = []

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def abort(self) -> None:
        self.calls.append("abort")

    def get_write_buffer_size(self) -> int:
        return 7

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return 1, 2

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.calls.append(f"limits {high}")


class Thin(Layer):
    """A layer without its own behaviour."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._below = transport

    def arrive(self, octets: bytes) -> None:
        self._deliver(memoryview(octets))

    def end(self) -> None:
        self._notify_end()

    def lose(self, error: Exception | None) -> None:
        self._notify_loss(error)


class Bytes(asyncio.Protocol):
    def __init__(self) -> None:
        self.seen: list[object] = []

    def data_received(self, data: bytes) -> None:
        self.seen.append(data)

    def eof_received(self) -> None:
        self.seen.append("end")

    def connection_lost(self, exc: Exception | None) -> None:
        self.seen.append(exc)

    def pause_writing(self) -> None:
        self.seen.append("pause")

    def resume_writing(self) -> None:
        self.seen.append("resume")


class Buffered(asyncio.BufferedProtocol):
    """With room for four bytes at a time."""

    def __init__(self) -> None:
        self.room = bytearray(4)
        self.seen = b""

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        self.seen += self.room[:nbytes]


def test_before_there_is_anything_below_a_layer_is_quiet() -> None:
    layer = Thin()
    layer.pause_reading()
    assert not layer.is_reading()
    layer.resume_reading()
    layer.set_write_buffer_limits(1)
    assert layer.get_write_buffer_size() == 0
    assert layer.get_write_buffer_limits() == (0, 0)
    assert layer.get_extra_info("peername", "nobody") == "nobody"
    layer.arrive(b"to nobody")
    layer.end()
    layer.pause_writing()
    layer.resume_writing()
    layer.abort()
    assert layer.is_closing()


def test_what_is_asked_of_a_layer_is_asked_of_what_lies_below() -> None:
    layer, below = Thin(), Below()
    layer.connection_made(below)
    assert layer.is_reading()
    layer.pause_reading()
    layer.resume_reading()
    layer.set_write_buffer_limits(9)
    layer.abort()
    assert below.calls == ["pause", "resume", "limits 9", "abort"]
    assert layer.get_write_buffer_size() == 7
    assert layer.get_write_buffer_limits() == (1, 2)
    assert layer.get_extra_info("peername") == "far"


def test_a_protocol_gets_bytes_ends_and_pauses_each_once() -> None:
    layer, above = Thin(), Bytes()
    layer.set_protocol(above)
    assert layer.get_protocol() is above
    layer.arrive(b"one")
    layer.pause_writing()
    layer.resume_writing()
    layer.end()
    layer.end()
    error = ConnectionResetError()
    layer.lose(error)
    layer.lose(None)
    assert above.seen == [b"one", "pause", "resume", "end", error]


def test_a_protocol_with_its_own_memory_gets_what_fits_again_and_again() -> None:
    layer, above = Thin(), Buffered()
    layer.set_protocol(above)
    layer.arrive(b"0123456789")
    assert above.seen == b"0123456789"


async def test_a_reader_is_fed_until_another_protocol_takes_its_place() -> None:
    layer = Thin()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    layer.attach(reader, asyncio.StreamReaderProtocol(reader, loop=loop))
    layer.arrive(b"straight")
    other = Bytes()
    layer.set_protocol(other)
    layer.arrive(b"elsewhere")
    assert other.seen == [b"elsewhere"]
    reader.feed_eof()
    assert await reader.read() == b"straight"


@layered
def test_tls_of_a_program_passes_through_a_layer(stage: Stage, mode: str, tcp: bool) -> None:
    server, _ = stage.start_pair(mode, tcp=tcp)
    authority = stage.pki.authority

    async def script(port: int) -> None:
        async with dialer_for(stage.pki, server.frontend) as dialer:
            reader, writer = await open_at(dialer, f"127.0.0.1:{port}")
            await writer.start_tls(authority.client_context(None), server_hostname="localhost")
            writer.write(b"GET /inside HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).endswith(b"GET /inside for localhost")
            writer.close()

    with web_server(authority.server_context(stage.pki.server)) as port:
        play(script(port))
    server.wait_until_quiet()


@layered
def test_a_handshake_of_a_program_that_fails_is_its_own_error_and_leaves_nothing(
    stage: Stage, tmp_path: Path, mode: str, tcp: bool
) -> None:
    server, _ = stage.start_pair(mode, tcp=tcp)
    stranger = FolderAuthority(tmp_path, "stranger")
    unhandled: list[dict[str, Any]] = []

    async def script(port: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        async with dialer_for(stage.pki, server.frontend) as dialer:
            _, writer = await open_at(dialer, f"127.0.0.1:{port}")
            with pytest.raises(ssl.SSLCertVerificationError, match="local issuer"):
                await writer.start_tls(stranger.client_context(None), server_hostname="localhost")
            assert writer.transport.is_closing()
            await writer.wait_closed()

    with web_server(stage.pki.authority.server_context(stage.pki.server)) as port:
        play(script(port))
    server.wait_until_quiet()
    assert unhandled == []


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(60)
    return ours, theirs


async def test_one_direction_ends_alone() -> None:
    ours, theirs = _pair()
    with theirs:
        reader, writer = await streams.plain_streams(ours, 1 << 16)
        theirs.sendall(b"early")
        writer.write(b"request")
        writer.write_eof()
        assert await asyncio.to_thread(theirs.recv, 100) == b"request"
        assert await asyncio.to_thread(theirs.recv, 100) == b""
        theirs.sendall(b" and late")
        theirs.shutdown(socket.SHUT_WR)
        assert await reader.read() == b"early and late"
        writer.close()
        await writer.wait_closed()


async def test_a_program_that_does_not_read_is_not_read_for() -> None:
    ours, theirs = _pair()
    with theirs:
        reader, writer = await streams.plain_streams(ours, 1 << 16)
        theirs.setblocking(False)
        while writer.transport.is_reading():  # type: ignore[attr-defined]
            try:
                theirs.send(bytes(1 << 14))
            except BlockingIOError:
                pass
            await asyncio.sleep(0)
        # One read of asyncio's, 256 KiB, may come on top of what it takes to stop.
        assert len(reader._buffer) <= (1 << 16) + (256 << 10)  # type: ignore[attr-defined]
        writer.transport.abort()
        await asyncio.sleep(0)


async def _lingering(taken: bool) -> None:
    ours, theirs = _pair()
    _, writer = await streams.plain_streams(ours, 1 << 16)
    while not writer.transport.get_write_buffer_size():
        writer.write(bytes(1 << 16))
    writer.close()
    writer.close()
    assert isinstance(writer, streams.EndWriter)
    timer = writer._end.linger
    assert timer is not None
    if taken:
        size = len(await asyncio.to_thread(until_end, theirs))
        assert size % (1 << 16) == 0
    await writer.wait_closed()
    assert writer._end.linger is None
    if taken:
        assert timer.cancelled()
    theirs.close()


def test_the_last_bytes_of_a_closed_writer_are_delivered() -> None:
    play(_lingering(taken=True))


def test_a_far_end_that_reads_nothing_is_given_up_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LINGER_SECONDS", 0.01)
    play(_lingering(taken=False))


async def test_a_writer_with_nothing_to_send_needs_no_timer() -> None:
    ours, theirs = _pair()
    with theirs:
        _, writer = await streams.plain_streams(ours, 1 << 16)
        writer.close()
        assert isinstance(writer, streams.EndWriter)
        assert writer._end.linger is None
        await writer.wait_closed()
        assert theirs.recv(1) == b""
