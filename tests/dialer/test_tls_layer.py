"""TLS with half-close, against Python's own TLS."""

import asyncio
import hashlib
import random
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, asynccontextmanager, suppress
from typing import Any, Final, cast

import pytest
from tests.support.coroutines import PATIENCE_SECONDS
from tests.support.scripted_frontend import Deed, tcp_frontend, until_end
from tests.support.tls_contexts import VERSIONS, server_context
from tests.support.tunnel_pki import TunnelPki

from umbilical.dialer import reach
from umbilical.dialer.failure import TunnelLost
from umbilical.dialer.settings import TcpServer
from umbilical.dialer.streams import Streams, layered_streams
from umbilical.dialer.tls_layer import CIPHER_BYTES, Scratch, TlsLayer

BUFFER_BYTES: Final = 256 * 1024
MIB: Final = 1024 * 1024


async def opened(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> tuple[TlsLayer, Streams]:
    sock = await reach.reach(TcpServer("127.0.0.1", port), PATIENCE_SECONDS)
    layer = TlsLayer(context, "127.0.0.1", session, Scratch())
    streams = layered_streams(layer, BUFFER_BYTES)
    await asyncio.get_running_loop().create_connection(lambda: layer, sock=sock)
    layer.set_write_buffer_limits(BUFFER_BYTES)
    try:
        await layer.shake_hands()
    except BaseException:
        layer.abort()
        raise
    return layer, streams


@asynccontextmanager
async def facing(
    pki: TunnelPki, server: AbstractContextManager[int], version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> AsyncIterator[Streams]:
    """Our end of TLS to a server that listens on this port."""
    context = pki.authority.client_context(pki.client)
    context.maximum_version = version
    with ExitStack() as frontend:
        layer, streams = await opened(frontend.enter_context(server), context)
        try:
            yield streams
        finally:
            layer.abort()
            await asyncio.to_thread(frontend.close)  # it waits for the server's thread, which waits for our end


class ServerHalf:
    """The peer, without SSLSocket, which has no half-close."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a reset takes away what waits to be sent
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._until_done(self._tls.do_handshake)

    def _until_done(self, step: Any, *arguments: Any) -> Any:
        while True:
            try:
                result = step(*arguments)
            except ssl.SSLWantReadError:
                self._flush()
                octets = self._socket.recv(1 << 16)
                if octets:
                    self._incoming.write(octets)
                else:
                    self._incoming.write_eof()
            else:
                self._flush()
                return result

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.sendall(self._outgoing.read())

    def sendall(self, octets: bytes) -> None:
        self._until_done(self._tls.write, octets)

    def recv(self, size: int) -> bytes:
        try:
            return bytes(self._until_done(self._tls.read, size))
        except ssl.SSLZeroReturnError:
            return b""

    def end(self, behind: bytes = b"") -> None:
        """Send close_notify, then these bytes, then FIN."""
        with suppress(ssl.SSLWantReadError):  # it wants the other side's end, which may come much later
            self._tls.unwrap()
        self._flush()
        self._socket.sendall(behind)
        self.cut()

    def cut(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


def against(
    pki: TunnelPki, deed: Deed, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> AbstractAsyncContextManager[Streams]:
    return facing(pki, tcp_frontend(deed, server_context(pki)), version)


def play_half(pki: TunnelPki, deed: Callable[[ServerHalf], None]) -> AbstractAsyncContextManager[Streams]:
    return facing(pki, tcp_frontend(lambda sock: deed(ServerHalf(sock, server_context(pki)))))


def layer_of(streams: Streams) -> TlsLayer:
    return cast(TlsLayer, streams[1].transport)


def transport_of(streams: Streams) -> asyncio.Transport:
    return cast(asyncio.Transport, streams[1].transport)


def rest_of(half: ServerHalf) -> bytes:
    received = b""
    while octets := half.recv(1 << 16):
        received += octets
    return received


async def test_what_comes_behind_the_far_end_s_end_is_not_kept(
    tunnel_pki: TunnelPki, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deed(half: ServerHalf) -> None:
        assert half.recv(1) == b"!"
        half.end(behind=bytes(4 * MIB))
        half._socket.recv(1)

    async with play_half(tunnel_pki, deed) as streams:
        reader, writer = streams
        layer, flooded = layer_of(streams), asyncio.Event()
        end = layer.eof_received

        def at_the_end() -> bool:
            flooded.set()
            return end()

        monkeypatch.setattr(layer, "eof_received", at_the_end)
        writer.write(b"!")
        assert await reader.read(-1) == b""
        await flooded.wait()
        assert layer._incoming.pending <= CIPHER_BYTES


@pytest.mark.parametrize("version", VERSIONS)
async def test_bytes_pass_both_ways(tunnel_pki: TunnelPki, version: ssl.TLSVersion) -> None:
    def echo(sock: socket.socket) -> None:
        while octets := sock.recv(1 << 16):
            sock.sendall(octets)

    payload = random.Random(1).randbytes(3 * MIB + 17)

    async with against(tunnel_pki, echo, version) as (reader, writer):

        async def send() -> None:
            for start in range(0, len(payload), 100_001):
                writer.write(payload[start : start + 100_001])
                await writer.drain()

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            assert await reader.readexactly(len(payload)) == payload


async def test_our_end_is_told_and_the_answer_still_comes(tunnel_pki: TunnelPki) -> None:
    def digest(half: ServerHalf) -> None:
        received = rest_of(half)
        half.sendall(hashlib.sha256(received).digest() + bytes(5 * MIB))
        half.end()

    async with play_half(tunnel_pki, digest) as (reader, writer):
        writer.write(b"x" * MIB)
        assert writer.can_write_eof()
        writer.write_eof()
        writer.write_eof()
        with pytest.raises(RuntimeError, match="after write_eof"):
            writer.write(b"more")
        answer = await reader.read(-1)
        assert answer == hashlib.sha256(b"x" * MIB).digest() + bytes(5 * MIB)


async def test_what_came_before_our_end_is_not_lost_by_it(tunnel_pki: TunnelPki) -> None:
    """SSL_shutdown discards a buffered record: none may be left."""
    greeted = threading.Event()

    def deed(half: ServerHalf) -> None:
        half.sendall(b"g" * 200_000)
        greeted.set()
        half.sendall(rest_of(half))
        half.end()

    async with play_half(tunnel_pki, deed) as streams:
        reader, writer = streams
        transport_of(streams).pause_reading()
        await asyncio.to_thread(greeted.wait, PATIENCE_SECONDS)
        writer.write(b"bye")
        writer.write_eof()
        transport_of(streams).resume_reading()
        assert await reader.read(-1) == b"g" * 200_000 + b"bye"


async def test_the_far_end_s_end_leaves_our_direction_open(tunnel_pki: TunnelPki) -> None:
    taken: list[bytes] = []
    done = threading.Event()

    def deed(half: ServerHalf) -> None:
        half.sendall(b"go on")
        half.end()
        taken.append(rest_of(half))
        done.set()

    async with play_half(tunnel_pki, deed) as streams:
        reader, writer = streams
        assert await reader.read(-1) == b"go on"
        while not layer_of(streams)._incoming.eof:  # its FIN, behind the close_notify
            await asyncio.sleep(0.001)
        for _ in range(20):
            writer.write(b"u" * 100_000)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert await asyncio.to_thread(done.wait, PATIENCE_SECONDS)
    assert taken == [b"u" * 2_000_000]


async def test_a_loss_under_an_open_connection_blames_the_server(tunnel_pki: TunnelPki) -> None:
    def cut(half: ServerHalf) -> None:
        half.sendall(b"half a")
        half.cut()
        half.recv(1)

    async with play_half(tunnel_pki, cut) as streams:
        cast(TlsLayer, streams[1].transport).server = "kas-0:8090"
        with pytest.raises(TunnelLost, match="the tunnel broke: server kas-0:8090: TLS: connection ended without"):
            await streams[0].read(-1)


async def test_a_reader_that_pauses_holds_the_sender_back(tunnel_pki: TunnelPki) -> None:
    sent: list[int] = [0]

    def flood(sock: socket.socket) -> None:
        while True:
            sent[0] += sock.send(bytes(1 << 16))

    async with against(tunnel_pki, flood) as streams:
        reader = streams[0]
        while transport_of(streams).is_reading():
            await asyncio.sleep(0.001)
        buffered = len(reader._buffer)  # type: ignore[attr-defined]
        assert buffered <= 2 * BUFFER_BYTES
        left = 2 * buffered
        while left > 0:
            left -= len(await reader.read(1 << 16))
        assert sent[0] > buffered


async def test_a_writer_waits_for_a_far_end_that_reads_nothing(tunnel_pki: TunnelPki) -> None:
    release = threading.Event()

    def deed(sock: socket.socket) -> None:
        release.wait(PATIENCE_SECONDS)
        until_end(sock)

    async with against(tunnel_pki, deed) as (_, writer):
        draining = None
        while draining is None or draining.done():
            writer.write(bytes(1 << 16))
            draining = asyncio.ensure_future(writer.drain())
            await asyncio.sleep(0)
        assert writer.transport.get_write_buffer_size() <= BUFFER_BYTES + (1 << 17)
        release.set()
        await draining


async def test_what_waits_to_be_read_is_read_when_a_write_fails(tunnel_pki: TunnelPki) -> None:
    """An alert with the reason may be pending after a reset."""
    gone = threading.Event()

    def reset(half: ServerHalf) -> None:
        half.sendall(b"last words")
        half.reset()
        gone.set()

    async with play_half(tunnel_pki, reset) as streams:
        reader, writer = streams
        transport_of(streams).pause_reading()
        assert await asyncio.to_thread(gone.wait, PATIENCE_SECONDS)
        writer.write(b"anybody there?")
        with pytest.raises(OSError):
            await writer.wait_closed()
        assert reader._buffer == b"last words"  # type: ignore[attr-defined]


async def test_a_dot_at_the_end_of_a_servers_name_is_left_out_of_tls(tunnel_pki: TunnelPki) -> None:
    layer = TlsLayer(tunnel_pki.authority.client_context(tunnel_pki.client), "localhost.", None, Scratch())
    assert layer.tls.server_hostname == "localhost"
