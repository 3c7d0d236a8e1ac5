"""The steps of a story along the time that they took, as one SVG."""

from html import escape
from typing import Final

from umbilical.checks.report import printable
from umbilical.lab.story import Call, Outcome, Step, Story
from umbilical.lab.svg import box, element, line, path, picture, text

WIDTH: Final = 1040.0
_BARS_LEFT: Final = 440.0
_BARS_RIGHT: Final = 970.0
_ROW: Final = 30.0
_TOP: Final = 34.0
_TITLE_CHARACTERS: Final = 60
_MOST_TICKS: Final = 8
_LEAST_BAR: Final = 3.0
_DURATION_ROOM: Final = 62.0


def timeline(story: Story) -> str:
    seconds = length(story)
    height = _TOP + _ROW * len(story.steps) + 8
    rows = [_row(number, step, seconds) for number, step in enumerate(story.steps)]
    label = f"{len(story.steps)} steps in {seconds:.1f} seconds"
    return picture(WIDTH, height, label, _axis(seconds, height), *rows, _calls(story, seconds), style="timeline")


def length(story: Story) -> float:
    """Return the seconds to the end of the last step; a clock that runs on while a report is read does not count."""
    ends = [step.started_seconds if step.ended_seconds is None else step.ended_seconds for step in story.steps]
    return max([*ends, *(moment for moment, _ in story.pictures)], default=0.0)


def tick_seconds(seconds: float) -> float:
    """Return the distance of ticks: 1, 2 or 5 times a power of ten, at most eight of them."""
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


def _row(number: int, step: Step, seconds: float) -> str:
    y = _TOP + _ROW * number
    ended = seconds if step.ended_seconds is None else step.ended_seconds
    left, right = _place(step.started_seconds, seconds), _place(ended, seconds)
    width = max(right - left, _LEAST_BAR)
    title = text(34, y + 15, _shortened(printable(step.title)), "title")
    count = text(24, y + 15, str(number + 1), "count", text_anchor="end")
    bar = box(left, y + 4, width, 15, f"bar {step.outcome.value}", 3)
    link = element("a", element("title", _full(step)), count, title, bar, href=f"#step-{number + 1}")
    return element("g", link, _duration(left, left + width, y + 15, step), class_=f"row {step.outcome.value}")


def _duration(left: float, right: float, y: float, step: Step) -> str:
    words = f"{step.seconds:.1f} s" if step.outcome is not Outcome.RUNNING else "running"
    if right + _DURATION_ROOM <= WIDTH:
        return text(right + 7, y, words, "duration")
    return text(left - 7, y, words, "duration", text_anchor="end")


def _full(step: Step) -> str:
    return escape(printable(f"{step.title}: {step.outcome.value}"))


def _shortened(title: str) -> str:
    return title if len(title) <= _TITLE_CHARACTERS else f"{title[: _TITLE_CHARACTERS - 1].rstrip()}…"


def _calls(story: Story, seconds: float) -> str:
    """Mark the calls to the webhook on the axis: a cross where it was not reached, a disc where it answered."""
    marks, last = [], Call.NONE
    for moment, seen in story.pictures:
        if seen.call not in (last, Call.NONE):
            marks.append(_mark(_place(moment, seconds), seen.call))
        last = seen.call
    return element("g", *marks) if marks else ""


def _mark(x: float, call: Call) -> str:
    y = _TOP - 6
    name = element("title", call.value)
    if call is Call.UNREACHABLE:
        cross = path(f"M{x - 4:.1f} {y - 4}l8 8m0 -8l-8 8", "mark cross")
        return element("g", name, cross, class_=call.value)
    return element("g", name, element("circle", cx=x, cy=y, r=4.5, class_="mark"), class_=call.value)
