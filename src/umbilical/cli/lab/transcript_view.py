"""Views of a transcript: live with a picture in a terminal, plain lines elsewhere."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, Self, TextIO

import click

from umbilical.checks.report import printable
from umbilical.cli.terminal import Lines, LiveScreen, has_colour, has_unicode, is_lively, live_console
from umbilical.lab.transcript import CallResult, Picture, StepOutcome, Transcript, TranscriptStep, TranscriptView

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

REAL_CALLER: Final = "kube-apiserver"
STAND_IN: Final = "stand-in"
# In a wider terminal the times are too far from their titles.
MOST_COLUMNS: Final = 100
# For picture, running step and evidence; a live view higher than the terminal flickers.
LEAST_LINES: Final = 20
MOST_EVIDENCE: Final = 8
RUNNING_EVIDENCE: Final = 3
REFRESH_PER_SECOND: Final = 10
# A longer pause between steps is shown as "preparing" or "cleaning up".
PATIENCE_SECONDS: Final = 0.4
_INDENT: Final = " " * 10


@contextmanager
def choose_view(title: str, *, is_stand_in: bool = False) -> Iterator[TranscriptView]:
    """Choose the view for this terminal, and restore the terminal at the end."""
    caller = STAND_IN if is_stand_in else REAL_CALLER
    if not is_lively(sys.stdout):
        yield TranscriptLines(title, sys.stdout, caller)
        return
    with TranscriptLiveView(title, caller) as view:
        yield view


def summary(transcript: Transcript, more: Mapping[str, str] | None = None) -> str:
    """Return the closing lines: figures, number of steps, time, and `more`."""
    rows = {name: printable(value) for name, value in transcript.figures.items()}
    done = sum(step.outcome is StepOutcome.DONE for step in transcript.steps)
    rows["steps"] = f"{done} of {len(transcript.steps)} done, in {_end(transcript):.1f} s"
    rows.update({name: printable(value) for name, value in (more or {}).items()})
    width = max(len(name) for name in rows) + 3
    text = "".join(f"  {_styled(f'{name:<{width}}', dim=True)}{value}\n" for name, value in rows.items())
    return text if has_unicode() else _ascii(text)


def _end(transcript: Transcript) -> float:
    return max((step.ended_seconds or step.started_seconds for step in transcript.steps), default=0.0)


def _styled(text: str, **style: str | bool) -> str:
    # click's keywords have different types, which a mapping cannot express.
    return click.style(text, **style) if has_colour() else text  # type: ignore[arg-type]


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _shown(text: str) -> list[str]:
    """Escape control characters: evidence is output of other programs."""
    lines = [printable(line) for line in text.splitlines()]
    return lines if has_unicode() else [_ascii(line) for line in lines]


def _all_shown(step: TranscriptStep) -> list[str]:
    return [line for piece in tuple(step.evidence) for line in _shown(piece)]


class TranscriptLines(Lines):
    """One line per event, for logs and pipes."""

    def __init__(self, title: str, stream: TextIO | None = None, caller: str = REAL_CALLER) -> None:
        super().__init__(stream or sys.stdout)
        self._caller = caller
        self._picture = Picture()
        self._say(_styled(title, bold=True))

    def began(self, step: TranscriptStep) -> None:
        self._say(f"{step.started_seconds:6.1f} s  {' '.join(_shown(step.title))}")

    def saw(self, step: TranscriptStep, evidence: str) -> None:
        for line in _shown(evidence):
            self._say(_INDENT + _styled(line, dim=True))

    def ended(self, step: TranscriptStep) -> None:
        if step.outcome is StepOutcome.DONE:
            self._say(_INDENT + _styled("✓" if has_unicode() else "ok", fg="green") + f" {step.seconds:.1f} s")
        else:
            sign = "✗ failed" if has_unicode() else "FAILED"
            self._say(_INDENT + _styled(sign, fg="red") + f" after {step.seconds:.1f} s")

    def shows(self, picture: Picture) -> None:
        before, self._picture = self._picture, picture
        if picture.call not in (before.call, CallResult.NONE):
            self._call("bootstrap", picture.call)
        if picture.production_call not in (before.production_call, CallResult.NONE):
            self._call("production", picture.production_call)

    def _call(self, who: str, call: CallResult) -> None:
        self._say(f"{_INDENT}call from the {who} {self._caller}: {call.value}")


class TranscriptLiveView(LiveScreen):
    """Shows finished steps, below them the running step and the current picture."""

    def __init__(self, title: str, caller: str = REAL_CALLER, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.spinner import Spinner

        from umbilical.cli.lab import transcript_picture

        self._drawing = transcript_picture
        self._glyphs = transcript_picture.UNICODE if has_unicode() else transcript_picture.ASCII
        self._sign_width = max(2, len(self._glyphs.failed))
        self._under_title = (0, 1, 0, self._sign_width + 2)
        self._title, self._caller, self._clock = title, caller, clock
        self._picture = Picture()
        self._step: TranscriptStep | None = None
        self._since = clock()
        self._is_over = False
        self._calls: list[tuple[bool, CallResult]] = []
        self._spinner = Spinner("dots" if has_unicode() else "line", style="blue")
        super().__init__(live_console(stderr=False), REFRESH_PER_SECOND)

    def __enter__(self) -> Self:
        self._console.print(f"\n{self._title}\n", style="bold")
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        super().__exit__()

    def began(self, step: TranscriptStep) -> None:
        self._since = self._clock()
        self._calls = []
        self._step = step

    def saw(self, step: TranscriptStep, evidence: str) -> None:
        """The next frame reads it from the step."""

    def ended(self, step: TranscriptStep) -> None:
        self._step, self._since = None, self._clock()
        self._put_above(self._finished(step), *self._routes())

    def shows(self, picture: Picture) -> None:
        before, self._picture = self._picture, picture
        if picture.call is not before.call:
            self._calls.append((picture.server, picture.call))
        if picture.production_call is not before.production_call:
            self._calls.append((False, picture.production_call))

    def _frame(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        parts = [] if self._is_over else [self._now(self._step)]
        if self._has_room():
            routes = self._drawing.routes(self._picture, self._caller, self._glyphs)
            parts += [Text(), self._drawing.draw(self._picture, self._caller, self._glyphs), *routes]
        return Group(*parts)

    def _now(self, step: TranscriptStep | None) -> "RenderableType":
        """Draw the running step; each line of evidence is cropped so that the picture does not move."""
        from rich.console import Group
        from rich.text import Text

        if step is None:
            idle = "cleaning up" if self._picture.nodes else "preparing"
            return self._row(self._spinner, Text(idle if self._clock() - self._since > PATIENCE_SECONDS else ""), None)
        seen = _all_shown(step)[-RUNNING_EVIDENCE:]
        return Group(self._head(step, self._clock() - self._since), *self._indented(seen, is_whole=False))

    def _has_room(self) -> bool:
        size = shutil.get_terminal_size()
        return bool(self._picture.nodes) and size.columns >= self._drawing.COLUMNS and size.lines >= LEAST_LINES

    def _finished(self, step: TranscriptStep) -> "RenderableType":
        from rich.console import Group

        lines = _all_shown(step)
        kept = lines[:MOST_EVIDENCE]
        if len(lines) > len(kept):
            kept.append(f"and {len(lines) - len(kept)} more lines")
        return Group(self._head(step, step.seconds), *self._indented(kept, is_whole=True))

    def _head(self, step: TranscriptStep, seconds: float) -> "RenderableType":
        from rich.text import Text

        title = Text(" ".join(_shown(step.title)), "bold red" if step.outcome is StepOutcome.FAILED else "")
        return self._row(self._sign(step), title, seconds)

    def _indented(self, lines: list[str], *, is_whole: bool) -> "list[RenderableType]":
        from rich.padding import Padding
        from rich.text import Text

        overflow: Literal["fold", "crop"] = "fold" if is_whole else "crop"
        texts = (Text(line, "dim", overflow=overflow, no_wrap=not is_whole) for line in lines)
        return [Padding(text, self._under_title) for text in texts]

    def _routes(self) -> "list[RenderableType]":
        """Draw the calls of the step, to keep them with it when the picture changes."""
        from rich.padding import Padding

        routes = [
            self._drawing.route(call, self._caller, through=is_through, glyphs=self._glyphs)
            for is_through, call in self._calls
            if call is not CallResult.NONE
        ]
        return [Padding(route, self._under_title) for route in routes]

    def _sign(self, step: TranscriptStep) -> "RenderableType":
        from rich.text import Text

        if step.outcome is StepOutcome.RUNNING:
            return self._spinner
        if step.outcome is StepOutcome.DONE:
            return Text(self._glyphs.done, "bold green")
        return Text(self._glyphs.failed, "bold red")

    def _row(self, sign: "RenderableType", title: "Text", seconds: float | None) -> "RenderableType":
        from rich.table import Table

        grid = Table.grid(expand=False, padding=(0, 1))
        columns = min(self._console.width, MOST_COLUMNS)
        grid.add_column(width=self._sign_width, justify="right")
        grid.add_column(width=max(columns - self._sign_width - 10, 20), overflow="fold")
        grid.add_column(width=7, justify="right", no_wrap=True, style="dim")
        grid.add_row(sign, title, "" if seconds is None else f"{seconds:.1f} s")
        return grid
