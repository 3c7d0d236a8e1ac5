"""Waiting with a deadline, and what the pipeline reports meanwhile.

Each look says what it saw; it is matched with failures that are known. The listener decides how a report looks.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from umbilical.fault import StageTimeout
from umbilical.host.waiting import Seen, look_until


@dataclass(frozen=True)
class WaitProgress:
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

    def waiting(self, moment: WaitProgress) -> None: ...

    def table(self, rows: Sequence[str], signals: Sequence[str], cells: Mapping[tuple[str, str], str]) -> None:
        """The nodes and what is seen of each: (node, signal) -> text."""


POLL_SECONDS: Final = 1.0


@dataclass(frozen=True)
class KnownFailure:
    """A failure that somebody has met before."""

    pattern: str
    """A regular expression for what was seen."""
    hint: str
    """What it means and what to do."""


def wait(
    reporter: Reporter,
    what: str,
    probe: Callable[[], Seen],
    timeout_seconds: float,
    *,
    remedy: str,
    signatures: Sequence[KnownFailure] = (),
    poll_seconds: float = POLL_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Seen:
    """Look until there is a result. Raises StageTimeout: UMB725, with what was seen last."""
    start = clock()

    def saw(seen: str) -> None:
        elapsed = clock() - start
        hints = tuple(one.hint for one in signatures if re.search(one.pattern, seen))
        reporter.waiting(WaitProgress(what, seen, elapsed, timeout_seconds, hints))
        if elapsed >= timeout_seconds:
            why = f"after {elapsed:.0f} s: {seen}"
            raise StageTimeout("UMB725", f"waited in vain: {what}", why, hints[0] if hints else remedy)

    return look_until(probe, saw, poll_seconds, sleep)
