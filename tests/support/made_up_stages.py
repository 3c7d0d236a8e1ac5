"""Made-up stages: each step leaves a mark that survives kills, and its undo removes it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support import hardway
from tests.support.recording_machines import RecordingMachines

from umbilical.checks.check import Check, Verdict, failed, passed
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.ledger import Ledger
from umbilical.hardway.pipeline import Ask, Pipeline
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Step, Undo
from umbilical.hardway.undoing import UNDOERS, Undoing
from umbilical.hardway.waiting import WaitProgress

UNMARK = "unmark"


class World:
    """What stages do something to."""

    def __init__(self) -> None:
        self.marks: dict[str, str] = {}
        self.acts: list[str] = []

    def mark(self, name: str, value: str) -> None:
        self.acts.append(name)
        self.marks[name] = value

    def unmark(self, site: Site, values: Mapping[str, Any]) -> None:
        self.acts.append(f"un{values['name']}")
        self.marks.pop(values["name"], None)


@dataclass
class MadeUpStage:
    number: int
    world: World
    marks: tuple[str, ...] = ()
    needs: tuple[int, ...] = ()
    input: str = "one"
    before_act: Callable[[str], None] = field(default=lambda name: None)
    never: str = ""
    """The mark that is a point of no return."""

    @property
    def name(self) -> str:
        return f"made-up-{self.number}"

    @property
    def title(self) -> str:
        return f"leave the marks of {self.number}"

    def inputs(self, site: Site) -> Mapping[str, str]:
        return {"input": self.input}

    def steps(self, site: Site) -> Sequence[Step]:
        return [self._step(mark) for mark in self.marks]

    def checks(self, site: Site) -> Sequence[Check[Site]]:
        return self.own_checks(site)

    def own_checks(self, site: Site) -> Sequence[Check[Site]]:
        return [
            Check(f"MARK-{mark}", f"{mark} is there", "it is needed", f"touch {mark}", self._judge(mark))
            for mark in self.marks
        ]

    def _step(self, mark: str) -> Step:
        return Step(f"leave {mark}", f"touch {mark}", lambda: self._act(mark), self._undo(mark))

    def _act(self, mark: str) -> None:
        self.before_act(mark)
        self.world.mark(mark, self.input)

    def _undo(self, mark: str) -> Undo:
        return Undo("never", {"why": f"{mark} stays"}) if mark == self.never else Undo(UNMARK, {"name": mark})

    def _judge(self, mark: str) -> Callable[[Site], Verdict]:
        def judge(site: Site) -> Verdict:
            found = self.world.marks.get(mark)
            return passed() if found == self.input else failed(f"{mark} is {found or 'missing'}")

        return judge


@dataclass
class EndingStage(MadeUpStage):
    """A stage that a later one supersedes."""

    ends_with: int = 0


class Lines:
    """Told things as lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.waits: list[WaitProgress] = []
        self.tables: list[Mapping[tuple[str, str], str]] = []

    def stage(self, number: int, title: str) -> None:
        self.lines.append(f"{number:02} {title}")

    def step(self, title: str, command: str) -> None:
        self.lines.append(f"step {title}: {command}")

    def saw(self, text: str) -> None:
        self.lines.append(f"saw {text}")

    def waiting(self, moment: WaitProgress) -> None:
        self.waits.append(moment)

    def table(self, rows: Sequence[str], signals: Sequence[str], cells: Mapping[tuple[str, str], str]) -> None:
        self.tables.append(cells)

    def ended(self, number: int, word: str, seconds: float) -> None:
        self.lines.append(f"{number:02} {word}")


class Clock:
    def __init__(self) -> None:
        self.moment = datetime(2026, 11, 16, 8, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.moment += timedelta(seconds=1)
        return self.moment


class Time:
    """Seconds that pass by sleeping, or by being set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def make_site(folder: Path, **changes: Any) -> Site:
    values: dict[str, Any] = {
        "cluster": hardway.cluster(ClusterProfile.KUBERNETES, masters=1, workers=1),
        "folder": folder,
        "assets": {},
        "hashes": {},
        "has_tunnel": True,
        "machines": RecordingMachines(),
        "reporter": Lines(),
        "now": Clock(),
        "kubeconfig": lambda address: folder / "kubeconfig",
    }
    return Site(**{**values, **changes})


def pipeline(
    folder: Path, stages: Sequence[MadeUpStage], ask: Ask | None = None, **changes: Any
) -> tuple[Pipeline, Ledger, Lines]:
    """Open the record again, as a new process does."""
    lines, ledger = Lines(), Ledger(folder, Clock())
    return Pipeline(stages, make_site(folder, **changes), ledger, lines, ask), ledger, lines


def undoing(folder: Path, stages: Sequence[MadeUpStage], world: World, **changes: Any) -> tuple[Undoing, Ledger, Lines]:
    lines, ledger = Lines(), Ledger(folder, Clock())
    undoers = {**UNDOERS, UNMARK: world.unmark}
    return Undoing(stages, undoers, make_site(folder, **changes), ledger, lines), ledger, lines
