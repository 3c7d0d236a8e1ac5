"""The journal: one JSON object per event and line, written to disk before the action, and only appended.

A kill can leave an incomplete last line. No action followed it, so it is dropped.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from umbilical.fault import HardwayError

JOURNAL: Final = "events.jsonl"
_ENVELOPE: Final = ("number", "at", "event")


class EventKind(Enum):
    """The first group changes the state; the second is for watchers only."""

    RUN_BEGAN = "run-began"
    RUN_ENDED = "run-ended"
    STAGE_BEGAN = "stage-began"
    STEP_BEGAN = "step-began"
    STEP_ENDED = "step-ended"
    STAGE_DONE = "stage-done"
    STAGE_SKIPPED = "stage-skipped"
    STAGE_FAILED = "stage-failed"
    STAGE_INTERRUPTED = "stage-interrupted"
    STAGE_STALE = "stage-stale"
    NOTED = "noted"
    UNDO_BEGAN = "undo-began"
    UNDO_ENDED = "undo-ended"
    STAGE_UNDONE = "stage-undone"

    SAW = "saw"
    WAITING = "waiting"
    TABLE = "table"


INFORMATIONAL: Final = frozenset({EventKind.SAW.value, EventKind.WAITING.value, EventKind.TABLE.value})


@dataclass(frozen=True)
class JournalEvent:
    number: int
    at: str
    kind: str
    """A value of `EventKind`, perhaps of a later release."""
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stage(self) -> int:
        return int(self.values.get("stage", 0))

    def to_line(self) -> bytes:
        content = {"number": self.number, "at": self.at, "event": self.kind, **self.values}
        return json.dumps(content, separators=(",", ":")).encode() + b"\n"


class Journal:
    """For one writer, which holds the lock. Opening drops an incomplete last line."""

    def __init__(self, path: Path, now: Callable[[], datetime], last: int = 0) -> None:
        """Continue after number `last`, even if the file was moved away."""
        self._path = path
        self._now = now
        self._last = last
        self.events: list[JournalEvent] = []
        self._length = 0
        self._read()

    def add(self, kind: EventKind, **values: Any) -> JournalEvent:
        """Write an event; one that changes the state is synced to disk when this returns."""
        if self._size() != self._length:
            # Interrupted after writing an event and before keeping it in memory.
            self._read()
        event = JournalEvent(self._next(), self._now().isoformat(timespec="milliseconds"), kind.value, values)
        line = event.to_line()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._write(descriptor, line)
            if kind.value not in INFORMATIONAL:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self.events.append(event)
        self._length += len(line)
        return event

    def since(self, number: int) -> list[JournalEvent]:
        """Return the events after a number, oldest first."""
        return list(takewhile(lambda event: event.number > number, reversed(self.events)))[::-1]

    def _read(self) -> None:
        self.events, self._length = _whole(self._path, _content(self._path))
        if self._size() > self._length:
            os.truncate(self._path, self._length)

    def _size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def _next(self) -> int:
        return max(self._last, self.events[-1].number if self.events else 0) + 1

    def _write(self, descriptor: int, line: bytes) -> None:
        try:
            written = 0
            while written < len(line):
                written += os.write(descriptor, line[written:])
        except OSError as error:
            # A full disk leaves half a line, to which the next one must not be appended.
            os.ftruncate(descriptor, self._length)
            why = error.strerror or str(error)
            remedy = f"free disk space (df {self._path}), then run the same command again"
            raise HardwayError("UMB721", f"could not write {self._path}", why, remedy) from error


class Tail:
    """Reads new events without the lock, each once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[JournalEvent]:
        """Return the complete events since the last call. Raises HardwayError: a line is invalid (UMB721)."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                content = stream.read()
        except FileNotFoundError:
            return []
        events, length = _whole(self._path, content)
        self._offset += length
        return events


def read_events(path: Path) -> list[JournalEvent]:
    """Read complete lines without the lock. Raises HardwayError: one before the last is invalid (UMB721)."""
    return _whole(path, _content(path))[0]


def parse_lines(lines: Iterable[bytes]) -> list[JournalEvent]:
    """Parse complete lines. Raises ValueError: one is not an event."""
    return [_event(line) for line in lines]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _whole(path: Path, content: bytes) -> tuple[list[JournalEvent], int]:
    """Return the events, and how many bytes they take."""
    whole = content[: content.rfind(b"\n") + 1]
    # Not splitlines: only a line feed ends a line.
    lines = whole.split(b"\n")[:-1]
    try:
        return parse_lines(lines), len(whole)
    except ValueError as error:
        # After a power cut the last block may hold anything, also zeros followed by a line end.
        try:
            return parse_lines(lines[:-1]), len(whole) - len(lines[-1]) - 1
        except ValueError:
            remedy = f"restore a backup, or continue with state.json alone: mv {path} {path}.bad"
            raise HardwayError("UMB721", f"could not read {path}", str(error), remedy) from None


def _event(line: bytes) -> JournalEvent:
    try:
        content = json.loads(line)
    except RecursionError:
        raise ValueError("an event is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError(f"a line is not a JSON object: {line[:60]!r}")
    number, at, kind = (content.pop(name, None) for name in _ENVELOPE)
    if type(number) is not int or not isinstance(at, str) or not isinstance(kind, str):
        raise ValueError(f"a line has no number, at and event: {line[:60]!r}")
    if type(content.get("stage", 0)) is not int:
        raise ValueError(f"an event has an invalid stage: {line[:60]!r}")
    return JournalEvent(number, at, kind, content)
