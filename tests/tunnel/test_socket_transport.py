"""The transport of a socket on our event loop keeps asyncio's contract."""

import asyncio
import os
import socket
from typing import Any, Final

import pytest
from tests.support.socket_pairs import reset, tcp_pair, unix_pair

from umbilical.tunnel.event_loop import EventLoop
from umbilical.tunnel.socket_transport import READ_BYTES, SocketTransport, open_transport

BIG: Final = os.urandom(4_000_000)


class Witness(asyncio.Protocol):
    """Notes what a transport reports."""

    def __init__(self, keeps_open: bool = True) -> None:
        self.octets = bytearray()
        self.ends = 0
        self.pauses = 0
        self.resumes = 0
        self.losses: list[Exception | None] = []
        self.changed = asyncio.Event()
        self._keeps_open = keeps_open

    def data_received(self, data: bytes) -> None:
        self.octets += data
        self.changed.set()

    def eof_received(self) -> bool:
        self.ends += 1
        self.changed.set()
        return self._keeps_open

    def pause_writing(self) -> None:
        self.pauses += 1

    def resume_writing(self) -> None:
        self.resumes += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.losses.append(exc)
        self.changed.set()

    async def until(self, octets: int = 0, ends: int = 0, losses: int = 0) -> None:
        while len(self.octets) < octets or self.ends < ends or len(self.losses) < losses:
            self.changed.clear()
            await self.changed.wait()


async def opened(sock: socket.socket, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
    transport = await open_transport(sock, protocol)
    assert isinstance(transport, SocketTransport)
    return transport


async def received(peer: socket.socket) -> bytes:
    """Everything up to the end, read by a thread, since the peer blocks."""

    def read() -> bytes:
        got = bytearray()
        while piece := peer.recv(65_536):
            got += piece
        return bytes(got)

    return await asyncio.to_thread(read)


async def test_bytes_and_the_end_that_arrive_together_are_both_delivered() -> None:
    ours, peer = tcp_pair()
    peer.sendall(b"all")
    peer.shutdown(socket.SHUT_WR)
    witness = Witness()
    transport = await opened(ours, witness)
    await witness.until(octets=3, ends=1)
    assert (bytes(witness.octets), witness.losses) == (b"all", [])
    transport.write(b"answer")
    transport.close()
    assert await received(peer) == b"answer"
    await witness.until(losses=1)
    assert (witness.ends, witness.losses) == (1, [None])


async def test_more_than_one_read_is_delivered_in_order() -> None:
    ours, peer = unix_pair()
    witness = Witness()
    transport = await opened(ours, witness)
    sending = asyncio.get_running_loop().run_in_executor(None, peer.sendall, BIG)
    await witness.until(octets=len(BIG))
    await sending
    assert witness.octets == BIG
    transport.abort()
    await witness.until(losses=1)


async def test_a_paused_transport_delivers_later_what_arrived_meanwhile() -> None:
    ours, peer = tcp_pair()
    witness = Witness()
    transport = await opened(ours, witness)
    transport.pause_reading()
    peer.sendall(b"early")
    peer.shutdown(socket.SHUT_WR)
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert (bytes(witness.octets), witness.ends, transport.is_reading()) == (b"", 0, False)
    transport.resume_reading()
    await witness.until(octets=5, ends=1)
    transport.close()
    await witness.until(losses=1)


async def test_a_full_socket_pauses_the_protocol_and_everything_arrives_before_the_end() -> None:
    ours, peer = unix_pair()
    witness = Witness()
    transport = await opened(ours, witness)
    transport.set_write_buffer_limits(1000)
    transport.write(BIG)
    transport.write(b"last")
    assert witness.pauses == 1
    assert transport.get_write_buffer_size() > 1000
    transport.write_eof()
    with pytest.raises(RuntimeError, match="after write_eof"):
        transport.write(b"too late")
    assert await received(peer) == BIG + b"last"
    assert (witness.resumes, transport.get_write_buffer_size()) == (1, 0)
    transport.close()
    await witness.until(losses=1)


async def test_a_close_sends_what_is_buffered_and_an_abort_does_not() -> None:
    for closes in (True, False):
        ours, peer = unix_pair()
        witness = Witness()
        transport = await opened(ours, witness)
        transport.write(BIG)
        (transport.close if closes else transport.abort)()
        assert transport.is_closing()
        assert (await received(peer) == BIG) is closes
        await witness.until(losses=1)
        assert (witness.losses, ours.fileno()) == ([None], -1)


async def test_a_reset_is_reported_once_also_while_bytes_wait() -> None:
    ours, peer = tcp_pair()
    witness = Witness()
    transport = await opened(ours, witness)
    transport.write(BIG)
    reset(peer)
    await witness.until(losses=1)
    await asyncio.sleep(0)
    assert [type(loss) for loss in witness.losses] == [ConnectionResetError]
    transport.write(b"ignored")
    assert transport.is_closing()


async def test_a_protocol_that_does_not_stay_open_is_closed_at_the_end_of_its_input() -> None:
    ours, peer = unix_pair()
    witness = Witness(keeps_open=False)
    await opened(ours, witness)
    peer.shutdown(socket.SHUT_WR)
    await witness.until(losses=1)
    assert await received(peer) == b""


async def test_a_protocol_that_raises_loses_its_connection_and_is_reported() -> None:
    class Broken(Witness):
        def data_received(self, data: bytes) -> None:
            raise ValueError("a bug")

    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    ours, peer = unix_pair()
    witness = Broken()
    await opened(ours, witness)
    peer.sendall(b"x")
    await witness.until(losses=1)
    assert [str(report["exception"]) for report in reports] == ["a bug"]
    assert [str(loss) for loss in witness.losses] == ["a bug"]


async def test_a_protocol_without_a_buffer_loses_its_connection_and_not_the_loop() -> None:
    class Broken(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

        def get_buffer(self, sizehint: int) -> bytearray:
            raise ValueError("a bug")

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set_result(exc)

    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    ours, peer = unix_pair()
    protocol = Broken()
    await opened(ours, protocol)
    peer.sendall(b"x")
    assert str(await protocol.lost) == "a bug"
    assert [str(report["exception"]) for report in reports] == ["a bug"]


async def test_a_protocol_that_refuses_its_connection_leaves_nothing_watched() -> None:
    class Refusing(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            raise ValueError("a bug")

    loop = asyncio.get_running_loop()
    assert isinstance(loop, EventLoop)
    before = loop.data_plane.watched()
    ours, _ = unix_pair()
    with pytest.raises(ValueError, match="a bug"):
        await open_transport(ours, Refusing())
    assert loop.data_plane.watched() == before


async def test_a_buffered_protocol_is_read_into_its_own_memory() -> None:
    class Buffered(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.room = bytearray(4)
            self.octets = bytearray()
            self.full = asyncio.Event()

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.room

        def buffer_updated(self, nbytes: int) -> None:
            self.octets += self.room[:nbytes]
            if len(self.octets) == 10:
                self.full.set()

    ours, peer = unix_pair()
    protocol = Buffered()
    transport = await opened(ours, protocol)
    peer.sendall(b"0123456789")
    await protocol.full.wait()
    assert protocol.octets == b"0123456789"
    transport.close()
    await asyncio.sleep(0)


async def test_addresses_are_known_and_the_loop_forgets_the_descriptor() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, EventLoop)
    before = loop.data_plane.watched()
    ours, peer = tcp_pair()
    witness = Witness()
    transport = await opened(ours, witness)
    assert loop.data_plane.watched() == before + 1
    assert transport.get_extra_info("peername") == peer.getsockname()
    assert transport.get_extra_info("sockname") == peer.getpeername()
    assert transport.get_extra_info("socket").fileno() == ours.fileno()
    assert transport.get_extra_info("cipher", "none") == "none"
    transport.close()
    await witness.until(losses=1)
    assert loop.data_plane.watched() == before
    assert transport.get_extra_info("peername", "gone") == "gone"


def test_another_event_loop_gives_its_own_transport() -> None:
    async def look() -> None:
        ours, peer = unix_pair()
        witness = Witness()
        transport = await open_transport(ours, witness)
        assert not isinstance(transport, SocketTransport)
        peer.sendall(b"x")
        await witness.until(octets=1)
        transport.close()
        await witness.until(losses=1)

    asyncio.run(look())


async def test_a_flood_on_one_connection_does_not_keep_another_waiting() -> None:
    loud, flooder = unix_pair()
    quiet, peer = unix_pair()
    loud_witness, quiet_witness = Witness(), Witness()
    transports = [await opened(loud, loud_witness), await opened(quiet, quiet_witness)]
    sending = asyncio.get_running_loop().run_in_executor(None, flooder.sendall, BIG * 4)
    await loud_witness.until(octets=READ_BYTES)
    peer.sendall(b"x")
    await quiet_witness.until(octets=1)
    assert len(loud_witness.octets) < len(BIG) * 4
    await loud_witness.until(octets=len(BIG) * 4)
    await sending
    for transport, witness in zip(transports, (loud_witness, quiet_witness), strict=True):
        transport.close()
        await witness.until(losses=1)
