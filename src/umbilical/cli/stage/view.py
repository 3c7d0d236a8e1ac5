"""Progress of a run on stderr: a live view with nodes and the current wait, or plain lines without a terminal."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TextIO

import click

from umbilical.checks.report import printable
from umbilical.cli.terminal import Lines, LiveScreen, is_lively, live_console
from umbilical.hardway.ledger import RunReporter
from umbilical.hardway.waiting import WaitProgress

if TYPE_CHECKING:
    from rich.console import RenderableType

REFRESH_PER_SECOND: Final = 4
# A wait in a log prints a line when something changed, and at least this often.
HEARTBEAT_SECONDS: Final = 30.0
MAX_SEEN: Final = 160
KEPT_LINES: Final = 4
_INDENT: Final = " " * 10
_SIGNS: Final = {
    "done": ("✓", "green"),
    "skipped": ("-", "bright_black"),
    "failed": ("✗", "red"),
    "interrupted": ("!", "yellow"),
    "undone": ("↶", "yellow"),
}

Seconds = Mapping[int, float]
"""Stage number -> seconds that it took the last time."""


class Screen(RunReporter, Protocol):
    def line(self, text: str) -> None:
        """A line about the run as a whole."""
        ...


@contextmanager
def choose_view(earlier: Seconds | None = None, *, plain: bool = False) -> Iterator[Screen]:
    """Choose the view for this terminal, and restore the terminal at the end."""
    if plain or not is_lively(sys.stderr):
        yield StageLines(earlier or {})
        return
    with StageLiveView(earlier or {}) as view:
        yield view


def duration(seconds: float) -> str:
    """Format seconds for people."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def wait_text(moment: WaitProgress) -> str:
    """Format a wait: what, elapsed and maximum time, last observation."""
    seen = moment.seen if len(moment.seen) <= MAX_SEEN else f"{moment.seen[:MAX_SEEN]}..."
    times = f"{moment.elapsed_seconds:.0f} of {moment.timeout_seconds:.0f} s"
    return printable(f"not yet ({times}): {moment.what}: {seen}")


def ending_text(word: str, seconds: float) -> str:
    return word if word in ("skipped", "undone") else f"{word} after {duration(seconds)}"


def guess_text(earlier: Seconds, number: int) -> str:
    """Format how long the stage took the last time, if at least a second."""
    seconds = earlier.get(number, 0.0)
    return f" (took {duration(seconds)} before)" if seconds >= 1 else ""


class StageLines(Lines):
    """One line per event, flushed at once; for logs and pipes."""

    def __init__(
        self, earlier: Seconds, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._earlier = earlier
        super().__init__(stream or sys.stderr)
        self._clock = clock
        self._start = clock()
        self._last_wait = ("", "")
        self._last_hints: tuple[str, ...] = ()
        self._next_beat = 0.0
        self._cells: Mapping[tuple[str, str], str] = {}

    def line(self, text: str) -> None:
        self._say(text)

    def stage(self, number: int, title: str) -> None:
        self._say(
            f"{self._clock() - self._start:6.1f} s  {number:02} {printable(title)}{guess_text(self._earlier, number)}"
        )

    def step(self, title: str, command: str) -> None:
        self._say(f"{_INDENT}> {printable(title)}")

    def saw(self, text: str) -> None:
        for line in text.splitlines():
            self._say(f"{_INDENT}  {printable(line)}")

    def waiting(self, moment: WaitProgress) -> None:
        seen = (moment.what, moment.seen)
        if seen != self._last_wait or self._clock() >= self._next_beat:
            self._last_wait, self._next_beat = seen, self._clock() + HEARTBEAT_SECONDS
            self._say(f"{_INDENT}  {wait_text(moment)}")
        if moment.hints != self._last_hints:
            self._last_hints = moment.hints
            for hint in moment.hints:
                self._say(f"{_INDENT}  hint: {printable(hint)}")

    def table(self, rows: Sequence[str], signals: Sequence[str], cells: Mapping[tuple[str, str], str]) -> None:
        """Print only changes, one line per node."""
        before, self._cells = self._cells, {**self._cells, **cells}
        for row in rows:
            new = [f"{signal} {cells[row, signal]}" for signal in signals if _changed(before, cells, row, signal)]
            if new:
                self._say(f"{_INDENT}  {printable(row)}: {printable(', '.join(new))}")

    def ended(self, number: int, word: str, seconds: float) -> None:
        self._say(f"{_INDENT}{ending_text(word, seconds)}")


class StageLiveView(LiveScreen):
    """Finished stages scroll up; below them the running one with its step, its wait and the nodes."""

    def __init__(self, earlier: Seconds, clock: Callable[[], float] = time.monotonic) -> None:

        self._earlier = earlier
        self._clock = clock
        self._number, self._title, self._since = 0, "", clock()
        self._step = ""
        self._seen: list[str] = []
        self._wait: WaitProgress | None = None
        self._nodes: tuple[Sequence[str], Sequence[str], Mapping[tuple[str, str], str]] = ((), (), {})
        super().__init__(live_console(stderr=True), REFRESH_PER_SECOND)

    def __exit__(self, *_: object) -> None:
        self._number = 0
        super().__exit__()

    def line(self, text: str) -> None:
        self._console.print(printable(text))

    def stage(self, number: int, title: str) -> None:
        self._number, self._title, self._since = number, title, self._clock()
        self._step, self._seen, self._wait, self._nodes = "", [], None, ((), (), {})

    def step(self, title: str, command: str) -> None:
        self._step, self._wait = title, None

    def saw(self, text: str) -> None:
        self._seen += text.splitlines()

    def waiting(self, moment: WaitProgress) -> None:
        self._wait = moment

    def table(self, rows: Sequence[str], signals: Sequence[str], cells: Mapping[tuple[str, str], str]) -> None:
        self._nodes = (tuple(rows), tuple(signals), dict(cells))

    def ended(self, number: int, word: str, seconds: float) -> None:
        from rich.text import Text

        sign, colour = _SIGNS[word]
        told = Text.assemble(
            (f" {sign} ", colour), f"{number:02} {self._title}", (f"  {ending_text(word, seconds)}", "dim")
        )
        self._number = 0
        self._put_above(told, *(Text(f"      {printable(line)}", "dim") for line in self._seen))

    def _frame(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        if not self._number:
            return Text()
        elapsed = duration(self._clock() - self._since) + guess_text(self._earlier, self._number)
        parts: list[RenderableType] = [
            Text.assemble(
                (" ▸ ", "blue"), (f"{self._number:02} {printable(self._title)}", "bold"), (f"  {elapsed}", "dim")
            )
        ]
        parts += [Text(f"   {printable(self._step)}")] if self._step else []
        parts += [
            Text(f"      {printable(line)}", "dim", no_wrap=True, overflow="ellipsis")
            for line in self._seen[-KEPT_LINES:]
        ]
        parts += self._waits()
        parts += [self._grid()] if self._nodes[0] else []
        return Group(*parts)

    def _waits(self) -> "list[RenderableType]":
        from rich.text import Text

        if self._wait is None:
            return []
        hints = (Text(f"      hint: {printable(hint)}", "yellow") for hint in self._wait.hints)
        return [Text(f"      {wait_text(self._wait)}", "cyan"), *hints]

    def _grid(self) -> "RenderableType":
        from rich.table import Table

        rows, signals, cells = self._nodes
        grid = Table("node", *signals, box=None, padding=(0, 2), header_style="dim")
        for row in rows:
            grid.add_row(printable(row), *(printable(cells.get((row, signal), "")) for signal in signals))
        return grid


def _changed(before: Mapping[tuple[str, str], str], now: Mapping[tuple[str, str], str], row: str, signal: str) -> bool:
    return (row, signal) in now and before.get((row, signal)) != now[row, signal]


def ask_step(title: str, command: str) -> bool:
    """Show a step with its command and ask for confirmation; False: quit."""
    click.echo(f"\n  {printable(title)}\n    $ {printable(command)}", err=True)
    return click.prompt("  do it", type=click.Choice(["y", "q"]), default="y", err=True) == "y"
