"""A line about what is waited for: rewritten in place on a terminal; elsewhere one line per change and a heartbeat."""

import shutil
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

HEARTBEAT_SECONDS: Final = 30.0
_CLEAR: Final = "\r\x1b[K"


class ProgressLine:
    """Use it as a context: leaving it clears the line."""

    def __init__(
        self, stream: TextIO | None = None, columns: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream or sys.stderr
        self._columns = columns or shutil.get_terminal_size().columns
        self._clock = clock
        self._is_terminal = self._stream.isatty()
        self._last = ""
        self._next_beat = 0.0

    def show(self, text: str) -> None:
        if self._is_terminal:
            # A line that wraps cannot be cleared any more.
            self._write(f"{_CLEAR}{text[: self._columns - 1]}")
        elif text != self._last or self._clock() >= self._next_beat:
            self._write(f"{text}\n")
            self._next_beat = self._clock() + HEARTBEAT_SECONDS
        self._last = text

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal and self._last:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
