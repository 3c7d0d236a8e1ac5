"""The record of a cluster: every event first goes to the journal, then into the state, and only then is it acted on.

A kill between the two is no harm: who opens it next adds to the state what the journal has more.
"""

import threading
from collections.abc import Callable, Iterator, MutableMapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from umbilical.fault import HardwayError
from umbilical.hardway.journal import JOURNAL, TELLING, Journal, Kind, read_events
from umbilical.hardway.state import STATE, State, read_state
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

    def add(self, kind: Kind, **values: Any) -> int:
        """Write an event down, and return its number."""
        # What runs beside a stage, such as a prober, may tell something too.
        with self._lock:
            event = self._journal.add(kind, **values)
            if event.kind not in TELLING:
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
            self._ledger.add(Kind.NOTED, stage=self.stage, name=name, value=value)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._ledger.add(Kind.NOTED, stage=self.stage, name=name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ledger.state.notes)

    def __len__(self) -> int:
        return len(self._ledger.state.notes)


def look(folder: Path) -> State:
    """Read the record of a cluster without the lock; somebody may be adding to it."""
    record = folder / RECORD
    # The state first: what is added meanwhile is in the journal. The other way round it could be missed.
    state = _kept(record)
    return state.add_all(read_events(record / JOURNAL))


def _kept(record: Path) -> State:
    """Return what state.json says; where it cannot be read, the journal has everything."""
    try:
        return read_state((record / STATE).read_bytes())
    except FileNotFoundError:
        return State()
    except HardwayError:
        if (record / JOURNAL).exists():
            return State()
        raise
