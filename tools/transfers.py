"""Many downloads of a few megabytes through one tunnel, every byte checked: the load on which HyperShift's users saw
streams lost (openshift/hypershift issue 9260).

Client and endpoint are one process and one thread. Each transfer is a tunnel of its own in http-connect mode: connect,
dial, eight bytes that choose the content, the content, the end.
"""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

CHUNK_BYTES: Final = 256 * 1024
HEAD_BYTES: Final = 64 * 1024
STALL_SECONDS: Final = 60.0
"""A transfer that gets no byte for so long is lost."""
OFFSET_BYTES: Final = 8


@dataclass
class TransferResults:
    whole: int = 0
    """Transfers of which every byte arrived, in order, and then the end."""
    lost: Counter[str] = field(default_factory=Counter)
    """The others, by what was wrong."""
    seconds: float = 0.0


class Content:
    """The same random bytes for all, beginning at another place for each."""

    def __init__(self, size: int) -> None:
        self.size: Final = size
        block = random.Random(size).randbytes(size)
        self._twice: Final = memoryview(block + block)

    def part(self, offset: int, start: int, end: int) -> memoryview:
        return self._twice[offset + start : offset + end]


class Endpoint:
    """Sends the content from the place that the client asks for, then closes."""

    def __init__(self, content: Content) -> None:
        self._content: Final = content

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = self._content.size
        try:
            offset = int.from_bytes(await reader.readexactly(OFFSET_BYTES))
            for start in range(0, size, CHUNK_BYTES):
                writer.write(self._content.part(offset, start, min(start + CHUNK_BYTES, size)))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client reports what it missed
        finally:
            writer.close()


async def download(socket_path: Path, address: str, content: Content, offset: int) -> str:
    """Make one transfer; return what was wrong with it, empty if nothing."""
    reader, writer = await asyncio.open_unix_connection(str(socket_path), limit=HEAD_BYTES)
    try:
        writer.write(f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        async with asyncio.timeout(STALL_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            return f"the dial failed: {head.splitlines()[0].decode('latin-1')}"
        writer.write(offset.to_bytes(OFFSET_BYTES))
        got = 0
        while True:
            async with asyncio.timeout(STALL_SECONDS):
                piece = await reader.read(CHUNK_BYTES)
            if not piece:
                return "" if got == content.size else "the end came early"
            if content.part(offset, got, got + len(piece)) != piece:
                return "bytes differ"
            got += len(piece)
    except TimeoutError:
        return f"nothing came for {STALL_SECONDS:g} s"
    except (OSError, asyncio.IncompleteReadError) as error:
        return f"the connection broke: {type(error).__name__}"
    finally:
        writer.close()


async def run(socket_path: Path, transfers: int, size: int, at_once: int) -> TransferResults:
    content, results = Content(size), TransferResults()
    endpoint = await asyncio.start_server(Endpoint(content).serve, "127.0.0.1", 0, backlog=1024)
    address = "{}:{}".format(*endpoint.sockets[0].getsockname())
    numbers = iter(range(transfers))

    async def work() -> None:
        for number in numbers:
            wrong = await download(socket_path, address, content, number * 4_099 % size)
            if wrong:
                results.lost[wrong] += 1
            else:
                results.whole += 1

    began = time.monotonic()
    async with endpoint, asyncio.TaskGroup() as workers:
        for _ in range(at_once):
            workers.create_task(work())
    results.seconds = time.monotonic() - began
    return results
