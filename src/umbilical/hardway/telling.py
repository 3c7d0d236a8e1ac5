"""What the pipeline tells goes two ways: to whoever looks on here, and into the journal for those who watch elsewhere.

Waits come every second: the journal gets one when what was seen is new, and else every few seconds.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from umbilical.hardway.journal import Kind
from umbilical.hardway.ledger import Ledger
from umbilical.hardway.reporting import Reporter, Waiting

WAITING_SECONDS: Final = 10.0
TABLE_SECONDS: Final = 2.0
MAX_TEXT: Final = 2000


class Telling(Reporter, Protocol):
    """A reporter that is also told how stages end."""

    def ended(self, number: int, word: str, seconds: float) -> None:
        """`word`: done, skipped, failed, interrupted, stale or undone."""
        ...


class Recorded:
    """Stages see this one."""

    def __init__(self, inner: Reporter, ledger: Ledger, clock: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._ledger = ledger
        self._clock = clock
        self._number = 0
        self._last_wait = ("", "")
        self._last_cells: Mapping[tuple[str, str], str] = {}
        self._next_wait = self._next_table = 0.0

    def stage(self, number: int, title: str) -> None:
        self._number = number
        self._inner.stage(number, title)

    def step(self, title: str, command: str) -> None:
        self._inner.step(title, command)

    def saw(self, text: str) -> None:
        self._ledger.add(Kind.SAW, stage=self._number, text=text[:MAX_TEXT])
        self._inner.saw(text)

    def waiting(self, moment: Waiting) -> None:
        seen, now = (moment.what, moment.seen), self._clock()
        if seen != self._last_wait or now >= self._next_wait:
            self._last_wait, self._next_wait = seen, now + WAITING_SECONDS
            self._ledger.add(Kind.WAITING, stage=self._number, **_moment(moment))
        self._inner.waiting(moment)

    def table(self, rows: Sequence[str], signals: Sequence[str], cells: Mapping[tuple[str, str], str]) -> None:
        now = self._clock()
        if cells != self._last_cells and now >= self._next_table:
            self._last_cells, self._next_table = dict(cells), now + TABLE_SECONDS
            written = [[row, signal, text] for (row, signal), text in cells.items()]
            self._ledger.add(Kind.TABLE, stage=self._number, rows=list(rows), signals=list(signals), cells=written)
        self._inner.table(rows, signals, cells)


def _moment(moment: Waiting) -> dict[str, object]:
    return {
        "what": moment.what,
        "seen": moment.seen[:MAX_TEXT],
        "elapsed_seconds": round(moment.elapsed_seconds, 1),
        "timeout_seconds": moment.timeout_seconds,
        "hints": list(moment.hints),
    }
