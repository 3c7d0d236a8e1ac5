"""Abilities of the terminal; a progress line, plain lines and a live view."""

import os
import shutil
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Self, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def has_colour() -> bool:
    """FORCE_COLOR takes precedence over NO_COLOR, which takes precedence over the kind of output."""
    if os.environ.get("FORCE_COLOR"):
        return True
    return not os.environ.get("NO_COLOR") and sys.stdout.isatty()


def has_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


HEARTBEAT_SECONDS: Final = 30.0
_DUMB: Final = ("dumb", "unknown")
_CLEAR: Final = "\r\x1b[K"


def is_dumb() -> bool:
    """The terminal cannot move its cursor."""
    return os.environ.get("TERM", "") in _DUMB


def is_lively(stream: TextIO) -> bool:
    """Whether a live view is possible: a terminal, and the library of the extra `lab`."""
    return stream.isatty() and not is_dumb() and find_spec("rich") is not None


def live_console(*, stderr: bool) -> "Console":
    from rich.console import Console

    colour = bool(os.environ.get("FORCE_COLOR")) or not os.environ.get("NO_COLOR")
    return Console(stderr=stderr, no_color=not colour, highlight=False, markup=False, emoji=False)


class Lines:
    """One line per event, flushed at once, for logs and pipes. Subclasses define the lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def _say(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


class LiveScreen:
    """Prints finished events above, and below them `_frame`, redrawn while something runs.

    A subclass sets all attributes that `_frame` uses before it calls `__init__`, which draws the first frame.
    """

    def __init__(self, console: "Console", refresh_per_second: int) -> None:
        from rich import live

        self._console = console
        self._live = live.Live(console=console, get_renderable=self._frame, refresh_per_second=refresh_per_second)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _frame(self) -> "RenderableType":
        raise NotImplementedError

    def _put_above(self, *parts: "RenderableType") -> None:
        # Buffered, so that nothing is shown twice: finished above and running below.
        with self._console:
            self._console.print(*parts, sep="\n")
            self._live.refresh()


class ProgressLine:
    """A context manager; leaving it clears the line."""

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
            # A wrapped line cannot be cleared.
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
