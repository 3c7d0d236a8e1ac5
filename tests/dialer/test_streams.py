"""Streams over a socket: ends, bounds, and a close that does not wait for ever."""

import asyncio
import socket

import pytest
from tests.support.dialer_scene import play

from umbilical.dialer import streams


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(60)
    return ours, theirs


async def _half_closed() -> None:
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


def test_one_direction_ends_alone() -> None:
    play(_half_closed())


async def _bounded_read() -> None:
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


def test_a_program_that_does_not_read_is_not_read_for() -> None:
    play(_bounded_read())


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
        size = len(await asyncio.to_thread(_rest, theirs))
        assert size % (1 << 16) == 0
    await writer.wait_closed()
    assert writer._end.linger is None
    if taken:
        assert timer.cancelled()
    theirs.close()


def _rest(sock: socket.socket) -> bytes:
    received = b""
    while octets := sock.recv(1 << 20):
        received += octets
    return received


def test_the_last_bytes_of_a_closed_writer_are_delivered() -> None:
    play(_lingering(taken=True))


def test_a_far_end_that_reads_nothing_is_given_up_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LINGER_SECONDS", 0.01)
    play(_lingering(taken=False))


async def _closed_empty() -> None:
    ours, theirs = _pair()
    with theirs:
        _, writer = await streams.plain_streams(ours, 1 << 16)
        writer.close()
        assert isinstance(writer, streams.EndWriter)
        assert writer._end.linger is None
        await writer.wait_closed()
        assert theirs.recv(1) == b""


def test_a_writer_with_nothing_to_send_needs_no_timer() -> None:
    play(_closed_empty())
