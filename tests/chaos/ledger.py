"""What both ends of every tunnel write down, one JSON line for each: the accounts that are compared after the storm."""

import json
import threading
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final


class Shape(StrEnum):
    ECHO = "echo"
    """The endpoint returns every byte: each that comes back is acknowledged."""
    UP = "up"
    """The endpoint says after every piece how many bytes it has checked."""
    DOWN = "down"
    """The client does."""


class Outcome(StrEnum):
    WHOLE = "whole"
    BROKEN = "broken"
    """The tunnel ended before its time, by an end or a reset."""
    REFUSED = "refused"
    """The dial came to nothing."""
    STALLED = "stalled"
    """Neither bytes nor an end came: what a tunnel must never do."""


@dataclass
class Passage:
    """A tunnel as its client saw it."""

    tunnel: int
    server: str
    endpoint: str
    shape: Shape
    size: int
    began: float
    """By the machine's monotonic clock, which all processes share."""
    ended: float = 0.0
    caller: str = ""
    """The address that the endpoint was dialled from, by its own word: this tells the agent. Empty: never heard."""
    sent: int = 0
    received: int = 0
    acknowledged: int = 0
    outcome: Outcome = Outcome.BROKEN
    how: str = ""
    violation: str = ""


@dataclass
class Visit:
    """A tunnel as its endpoint saw it."""

    tunnel: int
    endpoint: str
    shape: Shape
    size: int
    received: int = 0
    sent: int = 0
    acknowledged: int = 0
    how: str = ""
    violation: str = ""


ACKNOWLEDGE_BYTES: Final = 65536
THANKS: Final = b"."


class Ledger:
    """Appends rows to a file; threads may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def write(self, row: Passage | Visit) -> None:
        line = json.dumps(asdict(row)) + "\n"
        with self._lock, self._path.open("a") as stream:
            stream.write(line)


def read_passages(text: str) -> list[Passage]:
    return [Passage(**_named(row, outcome=Outcome(row["outcome"]))) for row in map(json.loads, text.splitlines())]


def read_visits(text: str) -> list[Visit]:
    return [Visit(**_named(row)) for row in map(json.loads, text.splitlines())]


def _named(row: dict[str, Any], **more: object) -> dict[str, Any]:
    return {**row, "shape": Shape(row["shape"]), **more}
