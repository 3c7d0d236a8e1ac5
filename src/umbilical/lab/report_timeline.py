"""The timeline of a transcript as SVG, and its decisive moments, which the report draws."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from html import escape
from typing import Final

from umbilical.checks.report import printable
from umbilical.lab.report_style import box, drawing, element, line, text
from umbilical.lab.transcript import CallResult, Picture, StepOutcome, Transcript, TranscriptStep

WIDTH: Final = 1040.0
_BARS_LEFT: Final = 440.0
_BARS_RIGHT: Final = 970.0
_ROW: Final = 30.0
_TOP: Final = 34.0
_TITLE_CHARACTERS: Final = 60
_MOST_TICKS: Final = 8
_LEAST_BAR: Final = 3.0
_CHARACTER: Final = 7.5


def timeline(transcript: Transcript) -> str:
    seconds = length(transcript)
    height = _TOP + _ROW * len(transcript.steps) + 8
    calls = _calls(transcript)
    rows = [_row(number, step, seconds, calls.get(number, [])) for number, step in enumerate(transcript.steps)]
    label = f"{len(transcript.steps)} steps in {seconds:.1f} seconds"
    return drawing(WIDTH, height, label, _axis(seconds, height), *rows, style="timeline")


def length(transcript: Transcript) -> float:
    """Return the seconds to the end of the last step."""
    ends = [step.started_seconds if step.ended_seconds is None else step.ended_seconds for step in transcript.steps]
    return max([*ends, *(moment for moment, _ in transcript.pictures)], default=0.0)


def tick_seconds(seconds: float) -> float:
    """Return the distance between ticks: 1, 2 or 5 times a power of ten, for at most eight ticks."""
    distance = 0.001
    while True:
        for factor in (1, 2, 5):
            if seconds <= distance * factor * _MOST_TICKS:
                return distance * factor
        distance *= 10


def _place(moment: float, seconds: float) -> float:
    share = moment / seconds if seconds else 0.0
    return _BARS_LEFT + share * (_BARS_RIGHT - _BARS_LEFT)


def _axis(seconds: float, height: float) -> str:
    distance = tick_seconds(seconds)
    parts = []
    for number in range(int(seconds / distance) + 1):
        x = _place(number * distance, seconds)
        parts.append(line(x, _TOP - 8, x, height - 6, "grid"))
        parts.append(text(x, _TOP - 15, f"{number * distance:g} s", "tick", text_anchor="middle"))
    return element("g", *parts)


def _row(number: int, step: TranscriptStep, seconds: float, calls: list[tuple[str, CallResult]]) -> str:
    y = _TOP + _ROW * number
    ended = seconds if step.ended_seconds is None else step.ended_seconds
    left, right = _place(step.started_seconds, seconds), _place(ended, seconds)
    width = max(right - left, _LEAST_BAR)
    title = text(34, y + 15, _shortened(printable(step.title)), "title")
    count = text(24, y + 15, str(number + 1), "count", text_anchor="end")
    bar = box(left, y + 4, width, 15, f"bar {step.outcome.value}", 3)
    link = element("a", element("title", _full(step)), count, title, bar, href=f"#step-{number + 1}")
    return element("g", link, _label(left, left + width, y + 15, step, calls), class_=f"row {step.outcome.value}")


def _label(left: float, right: float, y: float, step: TranscriptStep, calls: list[tuple[str, CallResult]]) -> str:
    """Write the step's duration and the results of its calls beside the bar."""
    duration = f"{step.seconds:.1f} s" if step.outcome is not StepOutcome.RUNNING else "running"
    words = [element("tspan", f"{escape(who)}{call.value}", dx=9, class_=call.value) for who, call in calls]
    room = _CHARACTER * (len(duration) + sum(len(who) + len(call.value) + 2 for who, call in calls))
    fits = right + room <= WIDTH
    place = {"x": right + 7} if fits else {"x": left - 7, "text_anchor": "end"}
    return element("text", duration, *words, y=y, class_="duration", **place)


def _full(step: TranscriptStep) -> str:
    return escape(printable(f"{step.title}: {step.outcome.value}"))


def _shortened(title: str) -> str:
    return title if len(title) <= _TITLE_CHARACTERS else f"{title[: _TITLE_CHARACTERS - 1].rstrip()}…"


def _calls(transcript: Transcript) -> dict[int, list[tuple[str, CallResult]]]:
    """Find the steps in which the result of a webhook call changed."""
    found: dict[int, list[tuple[str, CallResult]]] = {}
    before = Picture()
    for moment, seen in transcript.pictures:
        number = sum(step.started_seconds <= moment for step in transcript.steps) - 1
        changes = (("", before.call, seen.call), ("production: ", before.production_call, seen.production_call))
        for who, old, new in changes:
            if new not in (old, CallResult.NONE):
                found.setdefault(number, []).append((who, new))
        before = seen
    return found


class Turn(Enum):
    WITHOUT = "Without the tunnel"
    ALLOWED = "Through the tunnel: allowed"
    DENIED = "Through the tunnel: denied"
    BROKEN = "The tunnel is broken"
    CUT = "After removal"


@dataclass(frozen=True)
class Moment:
    turn: Turn
    seconds: float
    picture: Picture
    step: TranscriptStep | None
    """The step at that time."""


_ANSWERS: Final = {CallResult.ALLOWED: Turn.ALLOWED, CallResult.DENIED: Turn.DENIED}


def decisive(transcript: Transcript) -> list[Moment]:
    """Return one moment per turn, in order; after a break the answers count again."""
    moments: list[Moment] = []
    since_break: set[Turn] = set()
    for turn, seconds, picture in _turns(transcript):
        if moments and moments[-1].turn is turn:
            moments[-1] = _fuller(moments[-1], picture)
            continue
        if turn is Turn.BROKEN:
            since_break.clear()
        if turn not in since_break:
            moments.append(Moment(turn, seconds, picture, _step_at(transcript, seconds)))
        since_break.add(turn)
    return moments


def _fuller(moment: Moment, later: Picture) -> Moment:
    """Use the later picture of a turn, which has the production call too, unless agents are leaving in it."""
    is_leaving = len(later.agents) < len(moment.picture.agents)
    return moment if is_leaving and moment.turn in _ANSWERS.values() else replace(moment, picture=later)


def _turns(transcript: Transcript) -> Iterator[tuple[Turn, float, Picture]]:
    last_server = max((number for number, (_, picture) in enumerate(transcript.pictures) if picture.server), default=-1)
    had_server = was_answered = False
    for number, (seconds, picture) in enumerate(transcript.pictures):
        had_server = had_server or picture.server
        if not picture.server and had_server:
            # A server that starts again later was broken, not removed.
            yield Turn.CUT if number > last_server else Turn.BROKEN, seconds, picture
            continue
        turn = _turn(picture, was_answered)
        was_answered = was_answered or turn in _ANSWERS.values()
        if turn is not None:
            yield turn, seconds, picture


def _turn(picture: Picture, was_answered: bool) -> Turn | None:
    if picture.call is not CallResult.UNREACHABLE:
        return _ANSWERS.get(picture.call) if picture.server else None
    if not picture.server:
        return Turn.WITHOUT
    # Before the first answer this is still the result from before the tunnel.
    return Turn.BROKEN if was_answered else None


def _step_at(transcript: Transcript, seconds: float) -> TranscriptStep | None:
    begun = [step for step in transcript.steps if step.started_seconds <= seconds]
    return begun[-1] if begun else None
