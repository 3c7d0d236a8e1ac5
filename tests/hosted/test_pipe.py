"""Bytes over a dialer's streams: plain, and with TLS inside, in both directions and past one chunk."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.support.tls_listener import Deed, listener, swallows
from tests.support.tunnel_pki import FolderAuthority

from umbilical.hosted.endpoint_tls import EndpointTls, endpoint_context
from umbilical.hosted.pipe import CHUNK_BYTES, Pipe, TlsPipe
from umbilical.tunnel.settings import TlsFiles

SECONDS = 60.0
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
    """Send and receive at once, since an echo stops reading when nobody reads it."""
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
