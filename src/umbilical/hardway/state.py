"""The state of a cluster's stages, computed from the events of the journal.

`state.json` keeps it for fast reading, with the number of the last event that it includes.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any, Final

from umbilical.fault import HardwayError
from umbilical.hardway.journal import EventKind, JournalEvent
from umbilical.hardway.stage import NEVER, Undo

FORMAT: Final = 1
STATE: Final = "state.json"


class StageStatus(Enum):
    PENDING = "pending"
    RUNNING = "running"
    """Or killed: then no process holds the lock."""
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    STALE = "stale"
    """Done, and its inputs have changed since."""


@dataclass(frozen=True)
class UndoRecord:
    number: int
    """Number of the event that recorded it."""
    undo: Undo


@dataclass(frozen=True)
class StageRecord:
    status: StageStatus = StageStatus.PENDING
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Of the last start."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    checks: tuple[Mapping[str, str], ...] = ()
    """Id, outcome and evidence at the end."""
    failure: Mapping[str, str] | None = None
    """Code, what, why and next."""
    because: str = ""
    """Why it is stale."""
    began: str = ""
    ended: str = ""
    seconds: float | None = None
    """Duration of the last success; kept after an undo as an estimate for the next run."""
    undos: tuple[UndoRecord, ...] = ()
    """Oldest first."""

    @property
    def no_return(self) -> str | None:
        """Why the stage cannot be undone; None if it can."""
        for record in self.undos:
            if record.undo.name == NEVER:
                return str(record.undo.values.get("why", "it cannot be undone"))
        return None


@dataclass(frozen=True)
class Note:
    stage: int
    value: Any


@dataclass(frozen=True)
class RunState:
    number: int = 0
    """Number of the last event that it includes."""
    stages: Mapping[int, StageRecord] = field(default_factory=dict)
    notes: Mapping[str, Note] = field(default_factory=dict)

    def stage(self, number: int) -> StageRecord:
        return self.stages.get(number, StageRecord())

    def add(self, event: JournalEvent) -> "RunState":
        change = _CHANGES.get(event.kind)
        counted = replace(self, number=event.number)
        return counted if change is None else change(counted, event)

    def add_all(self, events: Iterable[JournalEvent]) -> "RunState":
        """Add the events that it does not include yet."""
        state = self
        for event in events:
            state = state.add(event) if event.number > state.number else state
        return state

    def to_json(self) -> bytes:
        content = {
            "format": FORMAT,
            "number": self.number,
            "stages": {f"{number:02}": _record_value(self.stages[number]) for number in sorted(self.stages)},
            "notes": {name: asdict(self.notes[name]) for name in sorted(self.notes)},
        }
        return json.dumps(content, indent=2).encode() + b"\n"


def read_state(content: bytes) -> RunState:
    """Read what `to_json` wrote. Raises HardwayError: invalid content (UMB722)."""
    try:
        return _state(json.loads(content))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        remedy = f"restore .umbilical/{STATE} or .umbilical/events.jsonl from a backup"
        raise HardwayError("UMB722", f"could not read {STATE}", f"{type(error).__name__}: {error}", remedy) from None


def _state(content: Any) -> RunState:
    if content["format"] != FORMAT:
        raise ValueError(f"its format is {content['format']!r}; this release reads format {FORMAT}")
    stages = {int(number): _record(value) for number, value in content["stages"].items()}
    notes = {str(name): Note(int(value["stage"]), value["value"]) for name, value in content["notes"].items()}
    return RunState(int(content["number"]), stages, notes)


def _record_value(record: StageRecord) -> dict[str, Any]:
    undos = [{"number": one.number, "name": one.undo.name, "values": dict(one.undo.values)} for one in record.undos]
    rest = {name: value for name, value in vars(record).items() if name not in ("status", "undos")}
    return {"status": record.status.value, **rest, "undos": undos}


def _record(value: Any) -> StageRecord:
    undos = tuple(UndoRecord(int(one["number"]), Undo(str(one["name"]), dict(one["values"]))) for one in value["undos"])
    return StageRecord(
        status=StageStatus(value["status"]),
        inputs=dict(value["inputs"]),
        outputs=dict(value["outputs"]),
        checks=tuple(dict(one) for one in value["checks"]),
        failure=None if value["failure"] is None else dict(value["failure"]),
        because=str(value["because"]),
        began=str(value["began"]),
        ended=str(value["ended"]),
        seconds=None if value["seconds"] is None else float(value["seconds"]),
        undos=undos,
    )


def _with(state: RunState, event: JournalEvent, **changes: Any) -> RunState:
    changed = replace(state.stage(event.stage), **changes)
    return replace(state, stages={**state.stages, event.stage: changed})


def _began(state: RunState, event: JournalEvent) -> RunState:
    fresh: dict[str, Any] = {"failure": None, "because": "", "checks": (), "outputs": {}, "ended": ""}
    return _with(state, event, status=StageStatus.RUNNING, inputs=event.values["inputs"], began=event.at, **fresh)


def _step_began(state: RunState, event: JournalEvent) -> RunState:
    """Record the undo of a step; a step that is repeated after a kill keeps its first record."""
    written = event.values.get("undo")
    if written is None:
        return state
    undo = Undo(written["name"], written["values"])
    undos = state.stage(event.stage).undos
    if any(one.undo == undo for one in undos):
        return state
    return _with(state, event, undos=(*undos, UndoRecord(event.number, undo)))


def _done(state: RunState, event: JournalEvent) -> RunState:
    values = event.values
    return _with(
        state,
        event,
        status=StageStatus.DONE,
        outputs=values["outputs"],
        checks=tuple(values["checks"]),
        ended=event.at,
        seconds=values["seconds"],
    )


def _failed(state: RunState, event: JournalEvent) -> RunState:
    values = event.values
    checks = tuple(values.get("checks", ()))
    return _with(state, event, status=StageStatus.FAILED, failure=values["failure"], checks=checks, ended=event.at)


def _undo_ended(state: RunState, event: JournalEvent) -> RunState:
    left = tuple(one for one in state.stage(event.stage).undos if one.number != event.values["undo"])
    return _with(state, event, undos=left)


def _undone(state: RunState, event: JournalEvent) -> RunState:
    kept = StageRecord(seconds=state.stage(event.stage).seconds)
    notes = {name: note for name, note in state.notes.items() if note.stage != event.stage}
    return replace(state, stages={**state.stages, event.stage: kept}, notes=notes)


def _noted(state: RunState, event: JournalEvent) -> RunState:
    name, notes = event.values["name"], dict(state.notes)
    if "value" in event.values:
        notes[name] = Note(event.stage, event.values["value"])
    else:
        notes.pop(name, None)
    return replace(state, notes=notes)


_CHANGES: Final[Mapping[str, Callable[[RunState, JournalEvent], RunState]]] = {
    EventKind.STAGE_BEGAN.value: _began,
    EventKind.STEP_BEGAN.value: _step_began,
    EventKind.STAGE_DONE.value: _done,
    EventKind.STAGE_FAILED.value: _failed,
    EventKind.STAGE_INTERRUPTED.value: lambda state, event: _with(
        state, event, status=StageStatus.INTERRUPTED, ended=event.at
    ),
    EventKind.STAGE_STALE.value: lambda state, event: _with(
        state, event, status=StageStatus.STALE, because=event.values["because"]
    ),
    EventKind.UNDO_ENDED.value: _undo_ended,
    EventKind.STAGE_UNDONE.value: _undone,
    EventKind.NOTED.value: _noted,
}
