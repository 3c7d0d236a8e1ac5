"""The control connection between the supervisor and one worker: questions and answers, both ways, as JSON lines.

It is one end of a socketpair that only these two processes have. Descriptors travel on other sockets (listening.py).
"""

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from umbilical.tunnel.daemon import open_streams, own_task

logger = logging.getLogger(__name__)

LINE_BYTES: Final = 64 * 1024 * 1024
"""Far above the largest answer, a profile. Both ends are ours: this bounds a bug."""
ASK_SECONDS: Final = 5.0

Answer = Any
Handle = Callable[[Any], Awaitable[Answer]]


class PeerGone(Exception):
    """The other process has ended, or does not answer in time."""


class QuestionFailed(Exception):
    """The other process could not answer; the text says why."""


class Control:
    def __init__(self, handles: Mapping[str, Handle]) -> None:
        """`handles` answer the questions of the other process, by name."""
        self._handles: Final = handles
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: Final[dict[int, asyncio.Future[Answer]]] = {}
        self._answering: Final[set[asyncio.Task[Any]]] = set()
        self._last = 0

    async def open(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._reader, self._writer = await open_streams(sock, LINE_BYTES)

    async def run(self) -> None:
        """Serve the connection until the other process ends; then all questions have failed."""
        assert self._reader is not None
        try:
            while line := await self._reader.readline():
                self._take(json.loads(line))
        except OSError:
            pass  # a peer that was killed may reset
        finally:
            self._close()

    def _take(self, message: dict[str, Any]) -> None:
        number = message["id"]
        if "ask" in message:
            task = own_task(self._answer(number, message["ask"], message["given"]))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            return
        waiting = self._waiting.pop(number, None)
        if waiting is None or waiting.done():
            return  # nobody waits any more
        if "failed" in message:
            waiting.set_exception(QuestionFailed(message["failed"]))
        else:
            waiting.set_result(message["answer"])

    async def _answer(self, number: int, name: str, given: Any) -> None:
        try:
            reply = {"id": number, "answer": await self._handles[name](given)}
        except QuestionFailed as refused:
            reply = {"id": number, "failed": str(refused)}
        except Exception as error:
            logger.exception("internal error in the answer to %s", name)
            reply = {"id": number, "failed": f"internal error: {error!r}"}
        self._write(reply)

    def _write(self, message: dict[str, Any]) -> None:
        if self._writer is not None:
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def ask(self, name: str, given: Any = None, seconds: float = ASK_SECONDS) -> Answer:
        """Raises PeerGone or QuestionFailed."""
        if self._writer is None:
            raise PeerGone("it has ended")
        self._last += 1
        number = self._last
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._write({"id": number, "ask": name, "given": given})
        try:
            async with asyncio.timeout(seconds):
                return await waiting
        except TimeoutError:
            raise PeerGone(f"it does not answer within {seconds:g} s") from None
        finally:
            self._waiting.pop(number, None)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(PeerGone("it has ended"))
        self._waiting.clear()
        for task in self._answering:
            task.cancel()
