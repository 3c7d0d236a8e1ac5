"""What the pipeline tells while it works; who listens decides how it looks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Waiting:
    """One moment of a wait."""

    what: str
    seen: str
    """What the last look saw."""
    elapsed_seconds: float
    timeout_seconds: float
    hints: tuple[str, ...] = ()
    """Known failures that what was seen looks like."""


class Reporter(Protocol):
    def stage(self, number: int, title: str) -> None: ...

    def step(self, title: str, command: str) -> None: ...

    def saw(self, text: str) -> None:
        """A fact that is worth a line."""
        ...

    def waiting(self, moment: Waiting) -> None: ...

    def table(self, rows: Sequence[str], signals: Sequence[str], cells: Mapping[tuple[str, str], str]) -> None:
        """The nodes and what is seen of each: (node, signal) -> text."""
        ...
