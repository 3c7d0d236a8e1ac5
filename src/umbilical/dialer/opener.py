"""Whoever opens connections to endpoints: the dialer itself, and what stands in front of it."""

import asyncio
from typing import Protocol

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
"""`writer.write_eof()` ends our direction alone; `reader.read()` returns b"" once the other has ended."""


class Opener(Protocol):
    async def open(self, host: str, port: int) -> Streams:
        """Raises DialFailed."""
        ...
