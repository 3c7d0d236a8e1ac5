"""Dialers for running servers: over a Unix socket or mTLS, in either protocol."""

import asyncio
from typing import Any

from tests.support.tunnel_client import Frontend
from tests.support.tunnel_pki import TunnelPki

from umbilical.dialer.dialer import Dialer
from umbilical.dialer.failure import DialFailed
from umbilical.dialer.settings import DialerSettings, Protocol, TcpServer, UnixServer
from umbilical.dialer.streams import Opener, Streams
from umbilical.tunnel.settings import TlsFiles


def server_of(frontend: Frontend) -> UnixServer | TcpServer:
    return UnixServer(frontend.unix_path) if frontend.unix_path is not None else TcpServer("127.0.0.1", frontend.port)


def client_files(pki: TunnelPki) -> TlsFiles:
    return TlsFiles(pki.client.certificate, pki.client.key, pki.authority.certificate_file)


def settings_for(pki: TunnelPki, *frontends: Frontend, **more: Any) -> DialerSettings:
    values: dict[str, Any] = {
        "servers": tuple(server_of(frontend) for frontend in frontends),
        "tls": client_files(pki),
        "protocol": Protocol(frontends[0].mode) if frontends else Protocol.HTTP_CONNECT,
    }
    return DialerSettings(**(values | more))


def dialer_for(pki: TunnelPki, *frontends: Frontend, **more: Any) -> Dialer:
    return Dialer(settings_for(pki, *frontends, **more))


async def open_at(opener: Opener, address: str) -> Streams:
    host, _, port = address.rpartition(":")
    return await opener.open(host.strip("[]"), int(port))


async def failure_at(opener: Opener, address: str) -> DialFailed:
    """Return the failure of a dial that must fail."""
    try:
        _, writer = await open_at(opener, address)
    except DialFailed as failure:
        return failure
    writer.transport.abort()
    raise AssertionError(f"the dial to {address} succeeded")


async def end(writer: asyncio.StreamWriter) -> None:
    """Close, and wait for it; how the other side ended does not matter here."""
    writer.close()
    try:
        await writer.wait_closed()
    except OSError:
        pass


async def echoed(streams: Streams, octets: bytes) -> bytes:
    """Send to an endpoint that sends all back."""
    reader, writer = streams

    async def send() -> None:
        writer.write(octets)
        await writer.drain()

    async with asyncio.TaskGroup() as group:
        group.create_task(send())
        return await reader.readexactly(len(octets))
