"""Parses the service record of a bootstrap service: /var/log/openshift/<service>.json, an array of entries.

The script appends an entry when it or one of its steps (`stage` in the record) starts or ends. systemd restarts it
after a failure, so one record holds many runs. A file may be truncated or hostile: all readable entries are used.
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
    """A field that the script left out is empty."""

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
    """Consecutive failures in one step (empty: between steps): the first, the last, and their number."""

    stage: str
    first: RecordEntry
    last: RecordEntry
    times: int


@dataclass(frozen=True)
class ServiceRecord:
    entries: tuple[RecordEntry, ...]
    fault: str = ""
    """Why the rest could not be read; empty if the file is complete."""

    @property
    def starts(self) -> int:
        """Number of runs. bootkube.sh sources the record twice, so two starts in a row count as one."""
        phases = ["", *(entry.phase for entry in self.entries)]
        return sum(before != SERVICE_START == phase for before, phase in pairwise(phases))

    @property
    def ended_well(self) -> bool:
        """Decided by the last entry alone, as in the installer."""
        last = self.entries[-1] if self.entries else None
        return last is not None and last.is_success and last.phase in (SERVICE_END, POST_COMMAND_END)

    @property
    def open_stage(self) -> RecordEntry | None:
        """The last started step, if it has not ended."""
        for entry in reversed(self.entries):
            if entry.phase == STAGE_START:
                return entry
            if entry.phase in (STAGE_END, SERVICE_START, *_ENDS):
                return None
        return None

    @cached_property
    def last_failure(self) -> ServiceFailure | None:
        """The failure that ended the last failed run, unless its step succeeded later."""
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
        """Steps whose failure did not end the run, such as a lookup of the API's name; each once."""
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
        # A bundle is often gathered during a retry: then the failing step is open.
        if failure is not None and (stage is None or stage.stage == failure.stage):
            return ServiceState.FAILING
        return ServiceState.IN_STAGE if stage is not None else ServiceState.BETWEEN_STAGES

    def _fatal_failures(self) -> Iterator[tuple[str, int]]:
        """Yield step and index of every entry that ended a run with a failure."""
        before: RecordEntry | None = None
        for at, entry in enumerate(self.entries):
            if entry.is_failure and entry.phase in _ENDS:
                # Only the entry before it names the step.
                is_named = before is not None and before.phase == STAGE_END and before.is_failure
                yield before.stage if before is not None and is_named else entry.stage, at
            before = entry


def parse_record(content: bytes) -> ServiceRecord:
    """Parse all readable entries. Never raises: `fault` reports a truncated record."""
    text = content.decode("utf-8", "replace").lstrip("\ufeff")
    entries: list[RecordEntry] = []
    try:
        for value in _items(text):
            if isinstance(value, dict):
                entries.append(_entry(value))
    except (ValueError, RecursionError) as error:
        return ServiceRecord(tuple(entries), f"truncated or damaged after {len(entries)} entries: {error}")
    return ServiceRecord(tuple(entries))


def parse_time(text: str) -> datetime | None:
    """Parse an ISO time; without a zone it is UTC, as the script writes it."""
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _items(text: str) -> Iterator[Any]:
    """Yield the items of a JSON array one by one, so that a damaged end does not lose the earlier ones."""
    decoder = json.JSONDecoder()
    at = _skip_space(text, 0)
    if text[at : at + 1] != "[":
        raise ValueError("it is not a JSON array")
    at = _skip_space(text, at + 1)
    while text[at : at + 1] != "]":
        value, at = decoder.raw_decode(text, at)
        yield value
        at = _skip_space(text, at)
        if text[at : at + 1] == ",":
            at = _skip_space(text, at + 1)
        elif text[at : at + 1] != "]":
            raise ValueError(f"expected a comma or ] at character {at}")


def _skip_space(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def _entry(value: dict[str, Any]) -> RecordEntry:
    def field(name: str) -> str:
        found = value.get(name)
        return found if isinstance(found, str) else ""

    # The key is `stage`. `openshift-install analyze` up to 4.22 reads `string` and never finds the step.
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
    """Count how often the last of these steps ended a run in a row."""
    others = (back for back, (stage, _) in enumerate(reversed(ends)) if stage != ends[-1][0])
    return next(others, len(ends))
