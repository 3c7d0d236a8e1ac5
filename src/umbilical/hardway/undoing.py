"""Undo stages: the recorded undo entries, newest first, each by its name in UNDOERS."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from umbilical.fault import Fault, HardwayError, Unsafe
from umbilical.hardway.journal import EventKind
from umbilical.hardway.ledger import RECORD, Ledger, Notes, RunReporter
from umbilical.hardway.site import Site
from umbilical.hardway.stage import FIRST_ON_MACHINES, NEVER, Stage
from umbilical.hardway.state import RunState, StageStatus, UndoRecord

ARTIFACTS: Final = "artifacts"
FORWARD: Final = "continue with umbilical stage run, or delete the cluster: umbilical stage destroy"
REMOVE_FILES: Final = "remove-files"
REMOVE_RELEASE: Final = "remove-release"
DESTROY_MACHINES: Final = "destroy-machines"
REMOVE_MACHINE: Final = "remove-machine"
START_MACHINE: Final = "start-machine"
SET_BALANCER: Final = "set-balancer"

Undoer = Callable[[Site, Mapping[str, Any]], None]
"""Idempotent: a kill may come between the action and its record."""


def _remove_files(site: Site, values: Mapping[str, Any]) -> None:
    """Remove `paths` below artifacts/, and directories that become empty."""
    root = site.folder / ARTIFACTS
    for name in values["paths"]:
        path = root / name
        if not path.resolve().is_relative_to(root.resolve()):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        _remove_empty(path.parent, root)


def _remove_empty(folder: Path, root: Path) -> None:
    while folder != root and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _set_balancer(site: Site, values: Mapping[str, Any]) -> None:
    """`artifact`: path of the previous configuration."""
    site.machines.set_balancer(site.content(values["artifact"]))


UNDOERS: Final[Mapping[str, Undoer]] = {
    REMOVE_FILES: _remove_files,
    DESTROY_MACHINES: lambda site, values: site.machines.destroy(),
    REMOVE_MACHINE: lambda site, values: site.machines.remove(values["node"]),
    START_MACHINE: lambda site, values: site.machines.start(values["node"]),
    SET_BALANCER: _set_balancer,
}
"""Stages add their own in `stages.catalogue`."""
_OUTSIDE: Final = frozenset({REMOVE_FILES, REMOVE_RELEASE, DESTROY_MACHINES})
"""Side effects outside the machines; all others end with the machines."""


# Credentials and data of a destroyed cluster.
_OF_THE_CLUSTER: Final = ("*.kubeconfig", "*-snapshot.db")


class Undoing:
    """One run, by the holder of the lock."""

    def __init__(
        self, stages: Sequence[Stage], undoers: Mapping[str, Undoer], site: Site, ledger: Ledger, reporter: RunReporter
    ) -> None:
        self._stages = stages
        self._undoers = undoers
        self._site = site
        site.notes = Notes(ledger)
        self._ledger = ledger
        self._reporter = reporter

    def rollback(self, number: int) -> list[int]:
        """Undo a stage and all later ones with side effects, newest first; return their numbers.

        Raises:
            Unsafe: one of them is past its point of no return (UMB727); nothing was undone.
            Fault: undoing one failed; newer ones are undone.
        """
        chosen = [one for one in touched(self._ledger.state) if one >= number]
        self._refuse(chosen)
        for one in chosen:
            self._undo(one, self._ledger.state.stage(one).undos)
        return chosen

    def destroy(self) -> list[int]:
        """Undo everything in the record. Idempotent. Raises Fault: the first failure, after trying all others."""
        chosen = touched(self._ledger.state)
        first: Fault | None = None
        for one in chosen:
            try:
                self._undo(one, self._worth_undoing(one))
            except Fault as fault:
                first = first or fault
                self._reporter.saw(fault.brief)
        if first is not None:
            raise first
        for pattern in _OF_THE_CLUSTER:
            for path in (self._site.folder / RECORD).glob(pattern):
                path.unlink(missing_ok=True)
        return chosen

    def _refuse(self, chosen: Iterable[int]) -> None:
        for one in chosen:
            why = self._ledger.state.stage(one).no_return
            if why is not None:
                what = f"stage {one:02} {self._name(one)} is past its point of no return"
                raise Unsafe("UMB727", what, why, FORWARD)

    def _worth_undoing(self, number: int) -> tuple[UndoRecord, ...]:
        state = self._ledger.state
        everything = [record for one in state.stages.values() for record in one.undos]
        if not any(record.undo.name == DESTROY_MACHINES for record in everything):
            return tuple(one for one in state.stage(number).undos if one.undo.name != NEVER)
        return tuple(one for one in state.stage(number).undos if one.undo.name in _OUTSIDE)

    def _undo(self, number: int, records: Sequence[UndoRecord]) -> None:
        self._reporter.stage(number, f"undo {self._name(number)}")
        if number >= FIRST_ON_MACHINES and any(record.undo.name not in _OUTSIDE for record in records):
            self._site.machines.enter()
        for record in reversed(records):
            self._undo_one(number, record)
        self._ledger.add(EventKind.STAGE_UNDONE, stage=number)
        self._reporter.ended(number, "undone", 0.0)

    def _undo_one(self, number: int, record: UndoRecord) -> None:
        undo = record.undo
        if undo.name not in self._undoers:
            why = f"the record has the undo entry {undo.name!r}, which this release does not know"
            raise HardwayError("UMB728", f"stage {number:02} was not undone", why, "use the release that ran the stage")
        self._reporter.step(f"{undo.name.replace('-', ' ')}{_shown(undo.values)}", "")
        self._ledger.add(EventKind.UNDO_BEGAN, stage=number, undo=record.number, name=undo.name)
        self._undoers[undo.name](self._site, undo.values)
        self._ledger.add(EventKind.UNDO_ENDED, stage=number, undo=record.number)

    def _name(self, number: int) -> str:
        return next((stage.name for stage in self._stages if stage.number == number), "")


def touched(state: RunState) -> list[int]:
    """Return the stages with side effects, newest first."""
    pending = StageStatus.PENDING
    numbers = (number for number, one in state.stages.items() if one.undos or one.status is not pending)
    return sorted(numbers, reverse=True)


def _shown(values: Mapping[str, Any]) -> str:
    told = ", ".join(_brief(value) for value in values.values())
    return f": {told}" if told else ""


def _brief(value: Any) -> str:
    if isinstance(value, list) and len(value) > 1:
        return f"{value[0]} and {len(value) - 1} more"
    return str(value[0] if isinstance(value, list) and value else value)
