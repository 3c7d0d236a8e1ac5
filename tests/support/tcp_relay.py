"""A relay for TCP on loopback, as a load balancer is one: it may be cut, and goes on with new connections.

Its far end may also be a Unix socket, or TLS with a certificate that the near end does not have.
"""

import asyncio
import contextlib
import ssl
import threading
from pathlib import Path
from types import TracebackType

SECONDS = 20.0
CHUNK = 65536


class Relay:
    """Runs in a thread of its own between `with` and its end."""

    def __init__(self, target: int | Path, tls: ssl.SSLContext | None = None) -> None:
        self.port = 0
        self.connections = 0
        self._target = target
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    def __enter__(self) -> "Relay":
        self._thread.start()
        assert self._ready.wait(SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)

    def cut(self) -> None:
        """End every connection that is open now, without a word."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(self._cut, done)
        assert done.wait(SECONDS)

    def _cut(self, done: threading.Event) -> None:
        for writer in self._writers:
            writer.transport.abort()
        done.set()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(OSError):
            far_reader, far_writer = await self._connect()
            both = {writer, far_writer}
            self._writers |= both
            try:
                await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
            finally:
                self._writers -= both
                for one in both:
                    one.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._target, Path):
            return await asyncio.open_unix_connection(self._target)
        return await asyncio.open_connection("127.0.0.1", self._target, ssl=self._tls)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while content := await reader.read(CHUNK):
            # Read on when the other end is gone: to close with unread bytes would reset this end.
            if not writer.is_closing():
                with contextlib.suppress(OSError):
                    writer.write(content)
                    await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof() if writer.can_write_eof() else writer.close()
