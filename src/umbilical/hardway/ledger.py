"""The record of a cluster: an event goes to the journal, then into the state, and only then the action follows.

After a kill in between, the next process that opens the record adds the missing events to the state. One writer at a
time holds the lock. `RecordingReporter` also writes the pipeline's reports to the journal.
"""

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

from umbilical.fault import HardwayError
from umbilical.hardway.journal import INFORMATIONAL, JOURNAL, EventKind, Journal, read_events
from umbilical.hardway.state import STATE, RunState, read_state
from umbilical.hardway.waiting import Reporter, WaitProgress
from umbilical.host.files import make_directory, write_file

RECORD: Final = ".umbilical"


class Ledger:
    """For one writer, which holds the lock."""

    def __init__(self, folder: Path, now: Callable[[], datetime]) -> None:
        self._lock = threading.Lock()
        self._folder = make_directory(folder / RECORD)
        kept = _kept(self._folder)
        self._journal = Journal(self._folder / JOURNAL, now, kept.number)
        self.state = kept.add_all(self._journal.events)

    def add(self, kind: EventKind, **values: Any) -> int:
        # Threads next to a stage, such as the prober, report too.
        with self._lock:
            event = self._journal.add(kind, **values)
            if event.kind not in INFORMATIONAL:
                self.state = self.state.add_all(self._journal.since(self.state.number))
                write_file(self._folder / STATE, self.state.to_json(), overwrite=True)
            return event.number


class Notes(MutableMapping[str, Any]):
    """Notes of stages for later stages, written at once. Values are JSON; set a key again to change its value."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.stage = 0
        """Stage that owns new notes; undoing it removes them."""

    def __getitem__(self, name: str) -> Any:
        return self._ledger.state.notes[name].value

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self or self[name] != value:
            self._ledger.add(EventKind.NOTED, stage=self.stage, name=name, value=value)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._ledger.add(EventKind.NOTED, stage=self.stage, name=name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ledger.state.notes)

    def __len__(self) -> int:
        return len(self._ledger.state.notes)


def read_record(folder: Path) -> RunState:
    """Read the record of a cluster without the lock, perhaps during a run."""
    record = folder / RECORD
    # The state first: events that are added meanwhile are in the journal.
    state = _kept(record)
    return state.add_all(read_events(record / JOURNAL))


def _kept(record: Path) -> RunState:
    """Read state.json; if it is unreadable, the journal has everything."""
    try:
        return read_state((record / STATE).read_bytes())
    except FileNotFoundError:
        return RunState()
    except HardwayError:
        if (record / JOURNAL).exists():
            return RunState()
        raise


WAITING_SECONDS: Final = 10.0
TABLE_SECONDS: Final = 2.0
MAX_TEXT: Final = 2000


class RunReporter(Reporter, Protocol):
    """A reporter that also gets the results of stages."""

    def ended(self, number: int, word: str, seconds: float) -> None:
        """`word`: done, skipped, failed, interrupted, stale or undone."""


class RecordingReporter:
    """The reporter of stages: passes reports on and writes them to the journal."""

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
        self._ledger.add(EventKind.SAW, stage=self._number, text=text[:MAX_TEXT])
        self._inner.saw(text)

    def waiting(self, moment: WaitProgress) -> None:
        seen, now = (moment.what, moment.seen), self._clock()
        if seen != self._last_wait or now >= self._next_wait:
            self._last_wait, self._next_wait = seen, now + WAITING_SECONDS
            self._ledger.add(EventKind.WAITING, stage=self._number, **_moment(moment))
        self._inner.waiting(moment)

    def table(self, rows: Sequence[str], signals: Sequence[str], cells: Mapping[tuple[str, str], str]) -> None:
        now = self._clock()
        if cells != self._last_cells and now >= self._next_table:
            self._last_cells, self._next_table = dict(cells), now + TABLE_SECONDS
            written = [[row, signal, text] for (row, signal), text in cells.items()]
            self._ledger.add(EventKind.TABLE, stage=self._number, rows=list(rows), signals=list(signals), cells=written)
        self._inner.table(rows, signals, cells)


def _moment(moment: WaitProgress) -> dict[str, object]:
    return {
        "what": moment.what,
        "seen": moment.seen[:MAX_TEXT],
        "elapsed_seconds": round(moment.elapsed_seconds, 1),
        "timeout_seconds": moment.timeout_seconds,
        "hints": list(moment.hints),
    }


LOCK: Final = "lock"
# `holder` takes the lock for an instant.
TRIES: Final = 10
TRY_SECONDS: Final = 0.02


@dataclass(frozen=True)
class LockHolder:
    pid: int
    command: str
    since: str


@contextmanager
def locked(folder: Path, command: str, since: str) -> Iterator[None]:
    """Hold the lock of a cluster's directory. The kernel releases it when the process ends.

    Raises HardwayError: another process holds it (UMB720), or this user may not write it (UMB721).
    """
    descriptor = _open(folder / RECORD / LOCK)
    try:
        if not _take_soon(descriptor):
            raise _lock_error(folder)
        _write_holder(descriptor, LockHolder(os.getpid(), command, since))
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def holder(folder: Path) -> LockHolder | None:
    """Return the process that works on this cluster now, if any."""
    path = folder / RECORD / LOCK
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _take(descriptor, fcntl.LOCK_SH):
            return None
        return _read(path)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    # Close-on-exec: a child process that outlives this one must not keep the lock.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        make_directory(path.parent)
        return os.open(path, flags, 0o600)
    except OSError as error:
        why, remedy = error.strerror or str(error), "run the command as the owner of the directory, usually root"
        raise HardwayError("UMB721", f"could not write {path}", why, remedy) from None


def _take(descriptor: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take_soon(descriptor: int) -> bool:
    for _ in range(TRIES):
        if _take(descriptor):
            return True
        time.sleep(TRY_SECONDS)
    return False


def _write_holder(descriptor: int, who: LockHolder) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(vars(who)).encode() + b"\n", 0)


def _read(path: Path) -> LockHolder:
    """The content may be outdated for a moment: it is written after the lock is taken."""
    try:
        content = json.loads(path.read_bytes())
        return LockHolder(int(content["pid"]), str(content["command"]), str(content["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return LockHolder(0, "unknown", "")


def _lock_error(folder: Path) -> HardwayError:
    who = _read(folder / RECORD / LOCK)
    why = f"`{who.command}` (pid {who.pid}) holds the lock since {who.since}" if who.pid else "another run holds it"
    return HardwayError("UMB720", f"{folder} is locked", why, "wait until it ends, or follow it: umbilical stage watch")
