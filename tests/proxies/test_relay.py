"""The relay: bytes, ends and failures between two pairs of real sockets."""

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.coroutines import PATIENCE_SECONDS
from tests.support.proxy_testbed import drop, eventually, play, rest_of
from tests.support.tunnel_pki import make_tunnel_pki

from umbilical.dialer.streams import Streams
from umbilical.proxies import relay as relay_module
from umbilical.proxies.metrics import Traffic
from umbilical.proxies.relay import RelayEnding, RelayLimits, cut, flush, part, relay, unsent


class RelayTestbed:
    """A client and an endpoint, far ends of two connections, with a relay between the near ends."""

    def __init__(self, client: Streams, endpoint: Streams, near: tuple[Streams, Streams]) -> None:
        self.client = client
        self.endpoint = endpoint
        self.near = near
        self.traffic = Traffic()
        self.task: asyncio.Task[RelayEnding] | None = None

    def start(self, now: Callable[[], float] = time.monotonic, **limits: Any) -> None:
        work = relay(*self.near, RelayLimits(**limits), self.traffic, now)
        self.task = asyncio.get_running_loop().create_task(work)

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()

    async def passes(self, octets: bytes) -> None:
        """From the client to the endpoint."""
        self.client[1].write(octets)
        assert await self.endpoint[0].readexactly(len(octets)) == octets

    async def leave(self) -> None:
        """Let the client read to the end and close, which ends the relay after an error."""
        await rest_of(self.client[0])
        await drop(self.client)

    async def ending(self) -> RelayEnding:
        assert self.task is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.task


async def _pair() -> tuple[Streams, Streams]:
    near, far = socket.socketpair()
    return await asyncio.open_connection(sock=near, limit=1 << 16), await asyncio.open_connection(sock=far)


@asynccontextmanager
async def open_testbed(pair: Callable[[], Awaitable[tuple[Streams, Streams]]] = _pair) -> AsyncIterator[RelayTestbed]:
    near_client, client = await pair()
    near_endpoint, endpoint = await pair()
    testbed = RelayTestbed(client, endpoint, (near_client, near_endpoint))
    try:
        yield testbed
    finally:
        for streams in (client, endpoint):
            await drop(streams)
        if testbed.task is not None:
            testbed.task.cancel()
            await asyncio.wait({testbed.task})
        for streams in (near_client, near_endpoint):
            cut(streams[1])
        await asyncio.sleep(0)


async def _tcp_pair(far_bytes: int = 0) -> tuple[Streams, Streams]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        far = socket.socket()
        if far_bytes:
            far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, far_bytes)
        far.connect(listening.getsockname())
        near, _ = listening.accept()
    return await asyncio.open_connection(sock=near), await asyncio.open_connection(sock=far)


def _reset(streams: Streams) -> None:
    sock = streams[1].get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    streams[1].transport.abort()


async def _slowly(reader: asyncio.StreamReader, piece_bytes: int) -> bytes:
    """Read everything, a piece per turn of the loop."""
    received = bytearray()
    while piece := await reader.read(piece_bytes):
        received += piece
        await asyncio.sleep(0)
    return bytes(received)


async def test_much_goes_both_ways_at_once() -> None:
    up, down = bytes(range(256)) * 20_000, bytes(range(255, -1, -1)) * 20_000

    async def send(streams: Streams, data: bytes) -> None:
        streams[1].write(data)
        streams[1].write_eof()
        await streams[1].drain()

    async with open_testbed() as testbed:
        testbed.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(send(testbed.client, up))
            group.create_task(send(testbed.endpoint, down))
            at_endpoint = group.create_task(rest_of(testbed.endpoint[0]))
            at_client = group.create_task(rest_of(testbed.client[0]))
        assert at_endpoint.result() == up
        assert at_client.result() == down
        assert await testbed.ending() == RelayEnding(len(up), len(down), "")
        assert (testbed.traffic.to_endpoint.total, testbed.traffic.to_client.total) == (len(up), len(down))


async def test_the_end_of_the_client_is_the_end_of_one_direction_alone() -> None:
    async with open_testbed() as testbed:
        testbed.start()
        testbed.client[1].write(b"question")
        testbed.client[1].write_eof()
        assert await testbed.endpoint[0].read() == b"question"
        testbed.endpoint[1].write(b"answer")
        assert await testbed.client[0].readexactly(6) == b"answer"
        testbed.endpoint[1].write(b", long after")
        testbed.endpoint[1].write_eof()
        assert await testbed.client[0].read() == b", long after"
        assert (await testbed.ending()).reason == ""


async def test_the_end_of_the_endpoint_is_the_end_of_one_direction_alone() -> None:
    async with open_testbed() as testbed:
        testbed.start()
        testbed.endpoint[1].write_eof()
        assert await testbed.client[0].read() == b""
        await testbed.passes(b"still sent")
        testbed.client[1].write_eof()
        assert await testbed.endpoint[0].read() == b""
        assert (await testbed.ending()).reason == ""


async def test_an_end_that_came_before_the_relay_counts() -> None:
    async with open_testbed() as testbed:
        testbed.client[1].write(b"early")
        testbed.client[1].write_eof()
        near = testbed.near[0][0]
        await eventually(lambda: b"early" in bytes(getattr(near, "_buffer", b"")))
        testbed.start()
        assert await testbed.endpoint[0].read() == b"early"
        testbed.endpoint[1].write_eof()
        assert await testbed.ending() == RelayEnding(5, 0, "")


async def test_a_reset_on_one_side_ends_the_other() -> None:
    async with open_testbed(_tcp_pair) as testbed:
        testbed.start()
        await testbed.passes(b"x")
        _reset(testbed.endpoint)
        assert await rest_of(testbed.client[0]) == b""
        await testbed.leave()
        assert (await testbed.ending()).reason != ""


async def test_what_was_received_before_a_reset_is_delivered() -> None:
    """The client reads nothing at first, so that the response is still buffered when the endpoint breaks."""
    answer = b"a" * 3_000_000

    async with open_testbed() as testbed:
        near_endpoint = testbed.near[1][0]
        testbed.endpoint[1].write(answer)
        await eventually(lambda: len(getattr(near_endpoint, "_buffer", b"")) > 100_000)
        held = len(getattr(near_endpoint, "_buffer", b""))
        near_endpoint.set_exception(ConnectionResetError("reset by peer"))
        testbed.start()
        assert len(await rest_of(testbed.client[0])) >= held
        await testbed.leave()
        assert (await testbed.ending()).reason == "reset by peer"


async def test_what_the_client_has_not_read_yet_survives_the_end_of_the_endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Closing a socket to which the peer still writes resets it and discards unsent data."""
    monkeypatch.setattr(relay_module, "LINGER_SECONDS", PATIENCE_SECONDS)
    answer = b"a" * 150_000

    near, client = await _narrow_pair()
    near_endpoint, endpoint = await _tcp_pair()
    client[1].transport.pause_reading()  # type: ignore[attr-defined]
    traffic = Traffic()
    task = asyncio.get_running_loop().create_task(relay(near, near_endpoint, RelayLimits(), traffic))
    endpoint[1].write(answer)
    await eventually(lambda: traffic.to_client.total == len(answer) and not unsent(near[1]))
    _reset(endpoint)
    await eventually(near_endpoint[1].is_closing)
    for _ in range(20):
        client[1].write(b"still sending")
        for _ in range(20):
            await asyncio.sleep(0)
    client[1].transport.resume_reading()  # type: ignore[attr-defined]
    assert await rest_of(client[0]) == answer
    await drop(client)
    assert (await asyncio.wait_for(task, PATIENCE_SECONDS)).reason != ""


async def _narrow_pair() -> tuple[Streams, Streams]:
    """The far end reads slowly, so that the rest stays in the near end's kernel buffer."""
    near, far = await _tcp_pair(far_bytes=4096)
    near[1].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 400_000)
    return near, far


async def test_a_slow_reader_holds_the_sender_back_and_little_is_kept() -> None:
    async with open_testbed() as testbed:
        testbed.start(buffer_bytes=65536)
        writer = testbed.endpoint[1]
        writer.transport.set_write_buffer_limits(high=0)
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while True:
                writer.write(b"f" * 65536)
                await writer.drain()
                sent += 65536

        flooding = asyncio.get_running_loop().create_task(flood())
        seen = -1
        while seen != sent:  # until nothing more arrives for many turns
            seen = sent
            for _ in range(200):
                await asyncio.sleep(0)
        assert testbed.near[0][1].transport.get_write_buffer_size() <= 65536 + relay_module.CHUNK_BYTES
        assert sent < 8_000_000
        flooding.cancel()
        await asyncio.wait({flooding})


class Clock:
    """A manual clock; `looks` counts how often the relay has read it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.seconds

    async def several_looks(self) -> None:
        before = self.looks
        await eventually(lambda: self.looks > before + 3)


async def test_one_byte_now_and_then_keeps_it_alive() -> None:
    async with open_testbed() as testbed:
        clock = Clock()
        testbed.start(clock, idle_seconds=0.01)
        for _ in range(3):
            await testbed.passes(b".")
            clock.seconds += 0.009
            await clock.several_looks()
        assert testbed.is_running
        clock.seconds += 0.002
        await testbed.leave()
        assert (await testbed.ending()).reason == "idle"


async def test_zero_is_no_limit() -> None:
    async with open_testbed() as testbed:
        clock = Clock()
        testbed.start(clock)
        for _ in range(3):
            await testbed.passes(b".")
            clock.seconds += 1e6
        assert testbed.is_running


async def test_a_peer_that_cannot_half_close_is_not_closed_while_it_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "HALF_CLOSED_SECONDS", 0.2)

    async with open_testbed() as testbed:
        near_endpoint = testbed.near[1][1]
        monkeypatch.setattr(near_endpoint.transport, "can_write_eof", lambda: False)
        testbed.start()
        testbed.client[1].write(b"question")
        testbed.client[1].write_eof()
        assert await testbed.endpoint[0].readexactly(8) == b"question"
        testbed.endpoint[1].write(b"answer")
        assert await testbed.client[0].readexactly(6) == b"answer"
        await testbed.leave()
        assert (await testbed.ending()).reason == "idle"


async def test_cancelled_it_cuts_both() -> None:
    async with open_testbed() as testbed:
        testbed.start()
        await testbed.passes(b"x")
        assert testbed.task is not None
        testbed.task.cancel()
        assert await rest_of(testbed.client[0]) == b""
        assert await rest_of(testbed.endpoint[0]) == b""


async def test_the_last_bytes_reach_a_slow_but_willing_reader() -> None:
    """Both sides have ended, and one has yet to read most of it."""
    data = b"z" * 5_000_000

    async with open_testbed() as testbed:
        testbed.start(buffer_bytes=8_000_000)
        testbed.client[1].write_eof()
        testbed.endpoint[1].write(data)
        testbed.endpoint[1].write_eof()
        near_client = testbed.near[0][1]
        await eventually(lambda: near_client.transport.get_write_buffer_size() > 1_000_000)
        assert await _slowly(testbed.client[0], 100_000) == data
        assert (await testbed.ending()).reason == ""


def test_being_held_back_many_times_loses_nothing_and_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio's streams need a pause_writing before every resume_writing."""
    data = bytes(range(256)) * 40_000

    async def script() -> None:
        async with open_testbed() as testbed:
            testbed.start(buffer_bytes=20_000)
            testbed.endpoint[1].write(data)
            testbed.endpoint[1].write_eof()
            assert await _slowly(testbed.client[0], 50_000) == data
            testbed.client[1].write_eof()
            assert await testbed.ending() == RelayEnding(0, len(data), "")

    play(script())
    assert caplog.text == ""


async def test_a_side_that_is_full_before_it_begins_is_waited_for() -> None:
    early, late = b"e" * 2_000_000, b"l" * 2_000_000

    async with open_testbed() as testbed:
        testbed.near[1][1].write(early)
        testbed.client[1].write(late)
        testbed.client[1].write_eof()
        testbed.start(buffer_bytes=65536)
        assert await _slowly(testbed.endpoint[0], 100_000) == early + late
        testbed.endpoint[1].write_eof()
        assert await testbed.ending() == RelayEnding(len(late), 0, "")


async def test_a_side_that_stays_full_before_it_begins_is_idle() -> None:
    async with open_testbed() as testbed:
        testbed.endpoint[1].transport.pause_reading()  # type: ignore[attr-defined]
        testbed.near[1][1].write(b"e" * 5_000_000)
        testbed.start(idle_seconds=0.05)
        await testbed.leave()
        testbed.endpoint[1].transport.abort()
        assert (await testbed.ending()).reason == "idle"


def test_tls_on_one_side_is_carried_like_any_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """asyncio's own TLS has no half-close: what the client sent before its end is still answered."""
    pki = make_tunnel_pki(tmp_path)
    answer = b"answer " * 100_000

    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(8) == b"question"
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def script() -> None:
        near_client, client = await _pair()
        context = pki.authority.server_context(pki.server)
        server = await asyncio.start_server(shout, "127.0.0.1", 0, ssl=context)
        where = server.sockets[0].getsockname()
        trust = pki.authority.client_context(None)
        endpoint = await asyncio.open_connection(*where, ssl=trust, server_hostname="127.0.0.1")
        work = relay(near_client, endpoint, RelayLimits(), Traffic())
        task = asyncio.get_running_loop().create_task(work)
        client[1].write(b"question")
        client[1].write_eof()
        assert await rest_of(client[0]) == answer
        assert (await asyncio.wait_for(task, PATIENCE_SECONDS)).to_client == len(answer)
        await drop(client)
        server.close()
        await server.wait_closed()

    play(script())
    assert caplog.text == ""


async def test_a_reader_that_takes_nothing_does_not_hold_a_closed_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "LAST_BYTES_SECONDS", 0.05)

    near, far = await _pair()
    far[1].transport.pause_reading()  # type: ignore[attr-defined]
    near[1].write(b"z" * 10_000_000)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await flush(near[1])
    assert near[1].transport.is_closing()
    await drop(far)


async def test_parting_waits_for_the_peer_to_read_before_the_reset_that_unread_input_causes() -> None:
    near, far = await _tcp_pair()
    far[1].write(b"never read " * 1000)
    near[1].write(b"goodbye")
    parting = asyncio.get_running_loop().create_task(part(*near))
    assert await far[0].read() == b"goodbye"
    await drop(far)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await parting
