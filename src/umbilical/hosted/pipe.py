"""Bytes to and from an endpoint over a dialer's streams, plain or with TLS of their own inside the tunnel.

asyncio's `start_tls` leans on private parts of the transport below it when a handshake fails; here a failure is one.
"""

import asyncio
import ssl
from typing import Final

from umbilical.dialer.opener import Streams
from umbilical.hosted.endpoint_tls import TlsFacts, facts_of

CHUNK_BYTES: Final = 64 * 1024


class Pipe:
    """`read` returns b"" at the end. Whoever opened the streams gives them to one pipe and closes that."""

    def __init__(self, streams: Streams) -> None:
        self._reader, self._writer = streams

    async def read(self) -> bytes:
        """Raises OSError."""
        return await self._reader.read(CHUNK_BYTES)

    async def write(self, payload: bytes) -> None:
        """Raises OSError."""
        self._writer.write(payload)
        await self._writer.drain()

    def close(self) -> None:
        """At once: whatever was to be read has been."""
        self._writer.transport.abort()


class TlsPipe(Pipe):
    def __init__(self, streams: Streams, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__(streams)
        self._incoming: Final = ssl.MemoryBIO()
        self._outgoing: Final = ssl.MemoryBIO()
        self._is_verified: Final = context.verify_mode is ssl.CERT_REQUIRED
        self._tls: Final = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)

    async def handshake(self, seconds: float) -> TlsFacts:
        """Raises OSError: ssl.SSLError, an end of the connection, or TimeoutError."""
        async with asyncio.timeout(seconds):
            await self._shake_hands()
        return facts_of(self._tls, is_verified=self._is_verified)

    async def read(self) -> bytes:
        while True:
            try:
                return self._tls.read(CHUNK_BYTES)
            except ssl.SSLWantReadError:
                await self._feed()
            except ssl.SSLZeroReturnError:
                return b""

    async def write(self, payload: bytes) -> None:
        for start in range(0, len(payload), CHUNK_BYTES):
            self._tls.write(payload[start : start + CHUNK_BYTES])
            await self._flush()

    async def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._feed()
            except ssl.SSLError:
                await self._flush()  # the alert that tells the endpoint why
                raise
            else:
                await self._flush()
                return

    async def _feed(self) -> None:
        await self._flush()
        received = await self._reader.read(CHUNK_BYTES)
        if received:
            self._incoming.write(received)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        if octets := self._outgoing.read():
            await super().write(octets)
