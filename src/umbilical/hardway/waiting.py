"""Wait with a deadline, and the reports of the pipeline.

Each observation is matched with known failures, whose hints are reported.
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
    """The last observation."""
    elapsed_seconds: float
    timeout_seconds: float
    hints: tuple[str, ...] = ()
    """Hints of known failures that match the observation."""


class Reporter(Protocol):
    def stage(self, number: int, title: str) -> None: ...

    def step(self, title: str, command: str) -> None: ...

    def saw(self, text: str) -> None:
        """Report a fact in one line."""

    def waiting(self, moment: WaitProgress) -> None: ...

    def table(self, rows: Sequence[str], signals: Sequence[str], cells: Mapping[tuple[str, str], str]) -> None:
        """Report the nodes: (node, signal) -> text."""


POLL_SECONDS: Final = 1.0


@dataclass(frozen=True)
class KnownFailure:
    """A failure that is recognised by its message."""

    pattern: str
    """Regular expression for the observation."""
    hint: str
    """What it means and what to do."""


def wait(
    reporter: Reporter,
    what: str,
    probe: Callable[[], Seen],
    timeout_seconds: float,
    *,
    remedy: str,
    known_failures: Sequence[KnownFailure] = (),
    poll_seconds: float = POLL_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Seen:
    """Probe until there is a result. Raises StageTimeout: UMB725, with the last observation."""
    start = clock()

    def saw(seen: str) -> None:
        elapsed = clock() - start
        hints = tuple(one.hint for one in known_failures if re.search(one.pattern, seen))
        reporter.waiting(WaitProgress(what, seen, elapsed, timeout_seconds, hints))
        if elapsed >= timeout_seconds:
            title = f"timed out after {elapsed:.0f} s waiting for: {what}"
            raise StageTimeout("UMB725", title, seen, hints[0] if hints else remedy)

    return look_until(probe, saw, poll_seconds, sleep)
