"""Tables of flags: each row has its value for a node, its reason, and what one sees without it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from umbilical.hardway.artifacts.static_pods.seat import Seat
from umbilical.hardway.explain.topic import Flag

Condition = Callable[[Seat], bool]


@dataclass(frozen=True)
class Row:
    name: str
    """Without the dashes; of an environment variable its name."""
    value: str | Callable[[Seat], str]
    why: str
    without: str
    """What one sees if it is missing or wrong."""
    only: Condition | None = None
    """On which nodes, in which profile; None: on all that run the program."""

    def flag(self, seat: Seat) -> Flag:
        value = self.value if isinstance(self.value, str) else self.value(seat)
        return Flag(self.name, value, self.why, self.without)


@dataclass(frozen=True)
class Program:
    """What a program is told, and what explanations need to say about it."""

    name: str
    flags: tuple[Row, ...]
    installer: str
    """How the real installer comes by this command line."""
    environment: tuple[Row, ...] = ()

    def command_line(self, seat: Seat) -> tuple[str, ...]:
        return tuple(str(flag) for flag in flags(self.flags, seat))

    def variables(self, seat: Seat) -> dict[str, str]:
        return {flag.name: flag.value for flag in flags(self.environment, seat)}


def flags(table: Sequence[Row], seat: Seat) -> tuple[Flag, ...]:
    return tuple(row.flag(seat) for row in table if row.only is None or row.only(seat))


def on_openshift(seat: Seat) -> bool:
    return seat.is_openshift


def on_kubernetes(seat: Seat) -> bool:
    return not seat.is_openshift


def by_profile(*, openshift: str, kubernetes: str) -> Callable[[Seat], str]:
    return lambda seat: openshift if seat.is_openshift else kubernetes


VERBOSITY: Final = Row("v", "2", "what a person needs who reads the log, and no more", "only errors are logged")
