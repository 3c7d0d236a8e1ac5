"""Which pictures of a story decide it: refused without the tunnel, answered through it, broken, mended, cut."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from umbilical.lab.story import Call, Picture, Step, Story


class Turn(Enum):
    WITHOUT = "Without the tunnel"
    ALLOWED = "Through the tunnel: allowed"
    DENIED = "Through the tunnel: denied"
    BROKEN = "The tunnel is broken"
    CUT = "After the cut"


@dataclass(frozen=True)
class Moment:
    turn: Turn
    seconds: float
    picture: Picture
    step: Step | None
    """What ran then."""


_ANSWERS: Final = {Call.ALLOWED: Turn.ALLOWED, Call.DENIED: Turn.DENIED}


def decisive(story: Story) -> list[Moment]:
    """Return one moment per turn of the story, in order; an answer counts again only after something broke."""
    moments: list[Moment] = []
    since_break: set[Turn] = set()
    for turn, seconds, picture in _turns(story):
        if moments and moments[-1].turn is turn:
            moments[-1] = _fuller(moments[-1], picture)
            continue
        if turn is Turn.BROKEN:
            since_break.clear()
        if turn not in since_break:
            moments.append(Moment(turn, seconds, picture, _step_at(story, seconds)))
        since_break.add(turn)
    return moments


def _fuller(moment: Moment, later: Picture) -> Moment:
    """Take the later picture of a turn, which knows more (the production call), unless agents leave an answer's."""
    is_leaving = len(later.agents) < len(moment.picture.agents)
    return moment if is_leaving and moment.turn in _ANSWERS.values() else replace(moment, picture=later)


def _turns(story: Story) -> Iterator[tuple[Turn, float, Picture]]:
    last_server = max((number for number, (_, picture) in enumerate(story.pictures) if picture.server), default=-1)
    had_server = was_answered = False
    for number, (seconds, picture) in enumerate(story.pictures):
        had_server = had_server or picture.server
        if not picture.server and had_server:
            # A server that comes back was not cut off for good.
            yield Turn.CUT if number > last_server else Turn.BROKEN, seconds, picture
            continue
        turn = _turn(picture, was_answered)
        was_answered = was_answered or turn in _ANSWERS.values()
        if turn is not None:
            yield turn, seconds, picture


def _turn(picture: Picture, was_answered: bool) -> Turn | None:
    if picture.call is not Call.UNREACHABLE:
        return _ANSWERS.get(picture.call) if picture.server else None
    if not picture.server:
        return Turn.WITHOUT
    # Before the first answer this is what is left of the refused call while the tunnel comes up.
    return Turn.BROKEN if was_answered else None


def _step_at(story: Story, seconds: float) -> Step | None:
    begun = [step for step in story.steps if step.started_seconds <= seconds]
    return begun[-1] if begun else None
