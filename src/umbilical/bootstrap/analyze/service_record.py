"""What a bootstrap service wrote down about itself: /var/log/openshift/<service>.json, an array of entries.

The script appends an entry when it starts or ends, and when a stage does. systemd starts it again after a failure, so
one record holds many runs. Files may be cut off or come from anywhere: what can be read is read.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

SERVICE_START: Final = "service start"
SERVICE_END: Final = "service end"
PRE_COMMAND_END: Final = "pre-command end"
POST_COMMAND_END: Final = "post-command end"
STAGE_START: Final = "stage start"
STAGE_END: Final = "stage end"
_ENDS: Final = (SERVICE_END, PRE_COMMAND_END, POST_COMMAND_END)
_SPACE: Final = " \t\r\n"


class ServiceState(Enum):
    NOT_STARTED = "not started"
    ENDED_WELL = "ended well"
    FAILING = "failing"
    IN_STAGE = "in a stage"
    BETWEEN_STAGES = "between stages"


@dataclass(frozen=True)
class RecordEntry:
    """Empty where the script left a field out."""

    timestamp: str
    phase: str
    result: str
    stage: str
    error_line: str
    error_message: str

    @property
    def time(self) -> datetime | None:
        return parse_time(self.timestamp)

    @property
    def is_failure(self) -> bool:
        return self.result == "failure"

    @property
    def is_success(self) -> bool:
        return self.result == "success"


@dataclass(frozen=True)
class ServiceFailure:
    """Why a run ended: the stage it was in (empty: between stages), the first and last time in a row, and how often."""

    stage: str
    first: RecordEntry
    last: RecordEntry
    times: int


@dataclass(frozen=True)
class ServiceRecord:
    entries: tuple[RecordEntry, ...]
    fault: str = ""
    """Why the rest could not be read; empty when the file was whole."""

    @property
    def starts(self) -> int:
        """How often it was run. bootkube.sh sources a library that brings the record again: two starts in a row."""
        phases = ["", *(entry.phase for entry in self.entries)]
        return sum(before != SERVICE_START == phase for before, phase in pairwise(phases))

    @property
    def ended_well(self) -> bool:
        """As the installer judges: by the last entry alone."""
        last = self.entries[-1] if self.entries else None
        return last is not None and last.is_success and last.phase in (SERVICE_END, POST_COMMAND_END)

    @property
    def open_stage(self) -> RecordEntry | None:
        """The stage that was begun last and has no end."""
        for entry in reversed(self.entries):
            if entry.phase == STAGE_START:
                return entry
            if entry.phase in (STAGE_END, SERVICE_START, *_ENDS):
                return None
        return None

    @cached_property
    def last_failure(self) -> ServiceFailure | None:
        """The failure that ended the last run which failed, unless its stage went well later."""
        ends = list(self._fatal_failures())
        if not ends:
            return None
        stage, at = ends[-1]
        if stage and any(entry.stage == stage and _is_done(entry) for entry in self.entries[at:]):
            return None
        times = _times_in_a_row(ends)
        return ServiceFailure(stage, self.entries[ends[-times][1]], self.entries[at], times)

    @property
    def passed_over(self) -> tuple[str, ...]:
        """Stages whose failure did not end the run, such as a lookup of the API's name; each once."""
        fatal = {at - 1 for _, at in self._fatal_failures()}
        stages = [
            entry.stage
            for at, entry in enumerate(self.entries)
            if entry.phase == STAGE_END and entry.is_failure and entry.stage and at not in fatal
        ]
        return tuple(dict.fromkeys(stages))

    @property
    def last_done(self) -> RecordEntry | None:
        return next(filter(_is_done, reversed(self.entries)), None)

    @cached_property
    def state(self) -> ServiceState:
        if not self.entries:
            return ServiceState.NOT_STARTED
        if self.ended_well:
            return ServiceState.ENDED_WELL
        stage, failure = self.open_stage, self.last_failure
        # A bundle is often made while the script tries again: then its stage is open, and yet it fails.
        if failure is not None and (stage is None or stage.stage == failure.stage):
            return ServiceState.FAILING
        return ServiceState.IN_STAGE if stage is not None else ServiceState.BETWEEN_STAGES

    def _fatal_failures(self) -> Iterator[tuple[str, int]]:
        """Yield the stage and the place of every entry that ended a run badly."""
        before: RecordEntry | None = None
        for at, entry in enumerate(self.entries):
            if entry.is_failure and entry.phase in _ENDS:
                # The entry of the stage comes first and alone names it.
                is_named = before is not None and before.phase == STAGE_END and before.is_failure
                yield before.stage if before is not None and is_named else entry.stage, at
            before = entry


def parse_record(content: bytes) -> ServiceRecord:
    """Read as many entries as there are. Never raises: a record that ends early is told by its `fault`."""
    text = content.decode("utf-8", "replace").lstrip("\ufeff")
    entries: list[RecordEntry] = []
    try:
        for value in _items(text):
            if isinstance(value, dict):
                entries.append(_entry(value))
    except (ValueError, RecursionError) as error:
        return ServiceRecord(tuple(entries), f"cut off or damaged after {len(entries)} entries: {error}")
    return ServiceRecord(tuple(entries))


def parse_time(text: str) -> datetime | None:
    """Read an ISO time; one without a zone is UTC, as the script writes it."""
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _items(text: str) -> Iterator[Any]:
    """Yield the items of a JSON array one by one, so that those before a break are not lost."""
    decoder = json.JSONDecoder()
    at = _skip_space(text, 0)
    if text[at : at + 1] != "[":
        raise ValueError("it is no JSON array")
    at = _skip_space(text, at + 1)
    while text[at : at + 1] != "]":
        value, at = decoder.raw_decode(text, at)
        yield value
        at = _skip_space(text, at)
        if text[at : at + 1] == ",":
            at = _skip_space(text, at + 1)
        elif text[at : at + 1] != "]":
            raise ValueError(f"the array does not go on at character {at}")


def _skip_space(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def _entry(value: dict[str, Any]) -> RecordEntry:
    def field(name: str) -> str:
        found = value.get(name)
        return found if isinstance(found, str) else ""

    # The stage's key is `stage`. Installers up to 4.22 look for `string` and so never know the stage.
    return RecordEntry(
        field("timestamp"),
        field("phase"),
        field("result"),
        field("stage"),
        field("errorLine"),
        field("errorMessage"),
    )


def _is_done(entry: RecordEntry) -> bool:
    return entry.phase == STAGE_END and entry.is_success


def _times_in_a_row(ends: list[tuple[str, int]]) -> int:
    """Count how often the last of these stages ended a run without another one in between."""
    others = (back for back, (stage, _) in enumerate(reversed(ends)) if stage != ends[-1][0])
    return next(others, len(ends))
