"""The record of a cluster: every event first goes to the journal, then into the state, and only then is it acted on.

A kill between the two does no harm: the next process that opens the record adds to the state what the journal has more.
One writer at a time holds the lock. `Recorded` also writes to the journal what the pipeline reports.
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
from umbilical.hardway.state import STATE, PipelineState, read_state
from umbilical.hardway.waiting import Reporter, WaitProgress
from umbilical.host.files import make_directory, write_file

RECORD: Final = ".umbilical"


class Ledger:
    """For one writer, who holds the lock."""

    def __init__(self, folder: Path, now: Callable[[], datetime]) -> None:
        self._lock = threading.Lock()
        self._folder = make_directory(folder / RECORD)
        kept = _kept(self._folder)
        self._journal = Journal(self._folder / JOURNAL, now, kept.number)
        self.state = kept.add_all(self._journal.events)

    def add(self, kind: EventKind, **values: Any) -> int:
        # What runs beside a stage, such as a prober, may tell something too.
        with self._lock:
            event = self._journal.add(kind, **values)
            if event.kind not in INFORMATIONAL:
                self.state = self.state.add_all(self._journal.since(self.state.number))
                write_file(self._folder / STATE, self.state.to_json(), overwrite=True)
            return event.number


class Notes(MutableMapping[str, Any]):
    """What stages note for later ones: written down at once. Values are of JSON; one is changed by setting it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.stage = 0
        """Whose notes they are from now on: undone with it."""

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


def read_record(folder: Path) -> PipelineState:
    """Read the record of a cluster without the lock; somebody may be adding to it."""
    record = folder / RECORD
    # The state first: what is added meanwhile is in the journal. The other way round it could be missed.
    state = _kept(record)
    return state.add_all(read_events(record / JOURNAL))


def _kept(record: Path) -> PipelineState:
    """Return what state.json says; where it cannot be read, the journal has everything."""
    try:
        return read_state((record / STATE).read_bytes())
    except FileNotFoundError:
        return PipelineState()
    except HardwayError:
        if (record / JOURNAL).exists():
            return PipelineState()
        raise


WAITING_SECONDS: Final = 10.0
TABLE_SECONDS: Final = 2.0
MAX_TEXT: Final = 2000


class RunReporter(Reporter, Protocol):
    """A reporter that is also told how stages end."""

    def ended(self, number: int, word: str, seconds: float) -> None:
        """`word`: done, skipped, failed, interrupted, stale or undone."""


class RecordingReporter:
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
# Who only asks for the holder has it for an instant.
TRIES: Final = 10
TRY_SECONDS: Final = 0.02


@dataclass(frozen=True)
class LockHolder:
    pid: int
    command: str
    since: str


@contextmanager
def locked(folder: Path, command: str, since: str) -> Iterator[None]:
    """Hold the lock of a cluster's directory. It ends with the process, however that ends.

    Raises HardwayError: somebody else has it (UMB720), or it cannot be had by this user (UMB721).
    """
    descriptor = _open(folder / RECORD / LOCK)
    try:
        if not _take_soon(descriptor):
            raise _taken(folder)
        _sign(descriptor, LockHolder(os.getpid(), command, since))
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def holder(folder: Path) -> LockHolder | None:
    """Say who works on this cluster now, if anybody does."""
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
    # Close-on-exec: a program that outlives us must not keep the lock for us.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        make_directory(path.parent)
        return os.open(path, flags, 0o600)
    except OSError as error:
        why, remedy = error.strerror or str(error), "run it as the owner of the directory: mostly root"
        raise HardwayError("UMB721", f"cannot write {path}", why, remedy) from None


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


def _sign(descriptor: int, who: LockHolder) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(vars(who)).encode() + b"\n", 0)


def _read(path: Path) -> LockHolder:
    """What the file says may be of a moment ago: it is signed after it is locked."""
    try:
        content = json.loads(path.read_bytes())
        return LockHolder(int(content["pid"]), str(content["command"]), str(content["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return LockHolder(0, "somebody", "")


def _taken(folder: Path) -> HardwayError:
    who = _read(folder / RECORD / LOCK)
    why = f"`{who.command}` (pid {who.pid}) has worked on it since {who.since}" if who.pid else "another run has it"
    return HardwayError("UMB720", f"{folder} is locked", why, "follow it with `umbilical stage watch`, or wait for it")
