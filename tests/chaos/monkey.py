"""Who breaks things in the storm, by a seed: two faults at a time, on two nodes, one deck of all kinds after another.

After each pair the field is given time to become whole again. From the blow until then whatever passes through what was
struck may fail, and nothing else may.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.chaos.field import SILENCE_SECONDS, WHOLE_SECONDS, Field, Part
from tests.support.labs import wait_until

from umbilical.lab import nft
from umbilical.lab.network import MACHINE_LINK

RULES: Final = "storm"
LOST_PERCENT: Final = (5, 10, 25)
# Nobody notices more than a pause in the flow.
SHORT_SECONDS: Final = (0.2, 1.5)
# Past the time after which a silent peer is given up, on both sides of a connection.
LONG_SECONDS: Final = SILENCE_SECONDS + 2.0
CALM_SECONDS: Final = 1.0


class Kind(StrEnum):
    KILL = "kill"
    PAUSE = "pause"
    CUT = "cut"
    LOSS = "loss"


@dataclass(frozen=True)
class Card:
    kind: Kind
    role: str
    """Whom it strikes: a server or an agent, or the link of its node."""
    is_long: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.role}{', long' if self.is_long else ''}"


@dataclass
class Blow:
    """One fault that was, and how long it could be felt. Times are the machine's monotonic clock."""

    card: Card
    part: Part
    began: float
    ended: float = float("inf")

    @property
    def struck(self) -> str:
        """Name the part, or the node where it is the link."""
        return self.part.name if self.card.kind in (Kind.KILL, Kind.PAUSE) else self.part.node

    def was_felt(self, began: float, ended: float) -> bool:
        return self.began <= ended and began <= self.ended


def rounds(draw: random.Random) -> Iterator[tuple[Card, Card]]:
    """Deal one deck: every kind for both roles, in pairs, and somewhere among them the two long ones together."""
    cards = [Card(kind, role) for kind in Kind for role in ("server", "agent")]
    draw.shuffle(cards)
    dealt = list(zip(cards[::2], cards[1::2], strict=True))
    roles = draw.sample(("server", "agent"), 2)
    dealt.insert(draw.randrange(len(dealt) + 1), (Card(Kind.PAUSE, roles[0], True), Card(Kind.CUT, roles[1], True)))
    return iter(dealt)


class Monkey:
    def __init__(self, field: Field, seed: int) -> None:
        self.blows: list[Blow] = []
        self._field = field
        self._draw = random.Random(seed)

    def play_deck(self) -> None:
        for cards in rounds(self._draw):
            self._play(cards)
            time.sleep(CALM_SECONDS)

    def _play(self, cards: tuple[Card, Card]) -> None:
        struck: list[tuple[float, Blow]] = []
        for card in cards:
            blow = Blow(card, self._victim(card, {other.part.node for _, other in struck}), time.monotonic())
            self.blows.append(blow)
            print(f"storm: {card}: {blow.struck}", flush=True)
            self._strike(blow)
            struck.append((time.monotonic() + self._hold(card), blow))
        for until, blow in sorted(struck, key=lambda item: item[0]):
            time.sleep(max(0.0, until - time.monotonic()))
            self._mend(blow)
        wait_until(self._field.is_whole, WHOLE_SECONDS)
        for _, blow in struck:
            blow.ended = time.monotonic()

    def _victim(self, card: Card, taken: set[str]) -> Part:
        parts = self._field.servers if card.role == "server" else self._field.agents
        return self._draw.choice([part for part in parts if part.node not in taken])

    def _hold(self, card: Card) -> float:
        return LONG_SECONDS if card.is_long else self._draw.uniform(*SHORT_SECONDS)

    def _strike(self, blow: Blow) -> None:
        field, part = self._field, blow.part
        match blow.card.kind:
            case Kind.KILL:
                field.kill(part)
            case Kind.PAUSE:
                field.signal(part, "STOP")
            case Kind.CUT:
                field.lab.set_link(part.node, False)
            case Kind.LOSS:
                rules = nft.lose_at_random(self._draw.choice(LOST_PERCENT), MACHINE_LINK)
                field.lab.add_rules(part.node, RULES, rules)

    def _mend(self, blow: Blow) -> None:
        field, part = self._field, blow.part
        match blow.card.kind:
            case Kind.KILL:
                field.start_part(part)
            case Kind.PAUSE:
                field.signal(part, "CONT")
            case Kind.CUT:
                field.lab.set_link(part.node, True)
            case Kind.LOSS:
                field.lab.remove_rules(part.node, RULES)
