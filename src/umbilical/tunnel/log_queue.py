"""Log lines on their way to a descriptor: the data path queues them, and a thread writes them.

A write blocks while nobody reads a pipe or a terminal is stopped; O_NONBLOCK would also change the descriptor of every
process that shares it. So the thread blocks, and lines beyond the bound are dropped and counted.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

MAX_QUEUED_BYTES: Final = 1 << 20
"""About 5,000 lines: some seconds of a busy server, while a log collector restarts."""
BATCH_BYTES: Final = 1 << 16
"""Size of a pipe's buffer: more in one write gains nothing."""
PAUSE_SECONDS: Final = 0.005
"""After the queue was emptied. A busy server then wakes the thread at most 200 times a second, not for each line."""
FLUSH_SECONDS: Final = 1.0
"""How long an exit waits for lines to be written."""


class Sink(Protocol):
    def write(self, line: bytes) -> None:
        """Write one or more lines. Never raises: a full disk must not end a tunnel."""

    def flush(self) -> None:
        """Wait for what was written before, for a limited time."""

    def close(self) -> None: ...


class LostLines:
    """Lines that were dropped, for metrics."""

    def __init__(self) -> None:
        self.total = 0


LOST_LINES: Final = LostLines()


class DescriptorSink:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, line: bytes) -> None:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            return  # there is no other place to report it

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class FileSink(DescriptorSink):
    """A log file that is truncated at its maximum size, as klog does."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        super().__init__(self._file)
        self._max_bytes = max_bytes
        self._size = os.fstat(self._file).st_size

    def write(self, line: bytes) -> None:
        self._size += len(line)
        if 0 < self._max_bytes < self._size:
            os.ftruncate(self._file, 0)
            self._size = len(line)
        super().write(line)

    def close(self) -> None:
        os.close(self._file)


class LogQueue:
    """A sink that never blocks its caller. Once a line was dropped, so are all until the queue is empty."""

    def __init__(
        self,
        sink: Sink,
        tell: Callable[[int], bytes],
        max_bytes: int = MAX_QUEUED_BYTES,
        lost: LostLines = LOST_LINES,
    ) -> None:
        self._sink = sink
        self._tell = tell
        """Makes the line that says how many were dropped."""
        self._max_bytes = max_bytes
        self._lost = lost
        self._changed = threading.Condition(threading.Lock())
        self._lines: deque[bytes] = deque()
        self._queued_bytes = 0
        self._dropped = 0
        self._waiting = False
        """The thread waits for lines."""
        self._closed = False
        self._thread: threading.Thread | None = None

    def write(self, line: bytes) -> None:
        with self._changed:
            if self._dropped or self._queued_bytes + len(line) > self._max_bytes:
                self._dropped += 1
                self._lost.total += 1
            else:
                self._lines.append(line)
                self._queued_bytes += len(line)
            self._wake()

    def _wake(self) -> None:
        if self._waiting:
            self._waiting = False
            self._changed.notify_all()
        elif self._thread is None and not self._closed:
            thread = threading.Thread(target=self._run, name="log", daemon=True)
            with suppress(RuntimeError):  # the system has no thread left: tried again with the next line
                thread.start()
                self._thread = thread

    def flush(self) -> None:
        with self._changed:
            self._changed.wait_for(self._is_idle, FLUSH_SECONDS)

    def close(self) -> None:
        """End the thread, unless it is blocked. Call `flush` before."""
        with self._changed:
            is_idle, thread = self._is_idle(), self._thread
            self._closed = True
            self._changed.notify_all()
        if is_idle:
            if thread is not None:
                thread.join(FLUSH_SECONDS)
                self._thread = None
            self._sink.close()

    def _is_idle(self) -> bool:
        return self._thread is None or self._waiting

    def _run(self) -> None:
        while batch := self._next_batch():
            self._sink.write(batch)
            if not self._lines:
                time.sleep(PAUSE_SECONDS)

    def _next_batch(self) -> bytes:
        """Wait for lines; empty once closed."""
        with self._changed:
            self._waiting = True
            self._changed.notify_all()
            while not self._lines and not self._dropped and not self._closed:
                self._changed.wait()
            self._waiting = False
            return self._take()

    def _take(self) -> bytes:
        batch = []
        size = 0
        while self._lines and size < BATCH_BYTES:
            line = self._lines.popleft()
            batch.append(line)
            size += len(line)
        self._queued_bytes -= size
        if self._dropped and not self._lines:
            batch.append(self._tell(self._dropped))
            self._dropped = 0
        return b"".join(batch)
