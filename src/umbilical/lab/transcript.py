"""The transcript of a scenario: steps with title, time, evidence and outcome.

A `TranscriptView` shows it while it grows; everything is kept for the report.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol


class StepOutcome(Enum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass
class TranscriptStep:
    title: str
    started_seconds: float
    """Since the transcript began."""
    outcome: StepOutcome = StepOutcome.RUNNING
    ended_seconds: float | None = None
    evidence: list[str] = field(default_factory=list)
    """Output of programs, unchanged."""

    @property
    def seconds(self) -> float:
        return 0.0 if self.ended_seconds is None else self.ended_seconds - self.started_seconds


class CallResult(Enum):
    """Result of a call to the webhook."""

    NONE = "none"
    UNREACHABLE = "unreachable"
    ALLOWED = "allowed"
    DENIED = "denied"


@dataclass(frozen=True)
class Picture:
    """State of the topology at one moment, for views."""

    nodes: tuple[str, ...] = ()
    apiserver: bool = False
    """Whether the bootstrap kube-apiserver, or its stand-in, runs."""
    production_apiserver: bool = False
    server: bool = False
    agents: tuple[str, ...] = ()
    """Nodes whose agent is connected."""
    webhook: str | None = None
    """The node that the webhook's pod runs on."""
    call: CallResult = CallResult.NONE
    production_call: CallResult = CallResult.NONE
    on_loopback: bool = False
    """Without namespaces: all nodes are addresses of loopback."""

    @property
    def production_node(self) -> str | None:
        """The first master, which runs the production kube-apiserver."""
        return next((name for name in self.nodes if name.startswith("master")), None)

    @property
    def gap(self) -> str:
        """Why a call without the tunnel does not reach the webhook."""
        return "no tunnel" if self.on_loopback else "no route"


class TranscriptView(Protocol):
    def began(self, step: TranscriptStep) -> None: ...
    def saw(self, step: TranscriptStep, evidence: str) -> None: ...
    def ended(self, step: TranscriptStep) -> None:
        """The step has its outcome now."""

    def shows(self, picture: Picture) -> None: ...


class NoView:
    """Shows nothing."""

    def began(self, step: TranscriptStep) -> None: ...
    def saw(self, step: TranscriptStep, evidence: str) -> None: ...
    def ended(self, step: TranscriptStep) -> None: ...
    def shows(self, picture: Picture) -> None: ...


class Transcript:
    """Records steps and pictures while a scenario runs. Steps do not nest."""

    def __init__(
        self, title: str, view: TranscriptView | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.title = title
        self.steps: list[TranscriptStep] = []
        self.figures: dict[str, str] = {}
        """Numbers for the closing summary, in the order in which they were set."""
        self.not_shown = ""
        """What this machine cannot show; for the report."""
        self.picture = Picture()
        self.pictures: list[tuple[float, Picture]] = []
        self._view: TranscriptView = view or NoView()
        self._clock = clock
        self._start = clock()

    @contextmanager
    def step(self, title: str) -> Iterator[TranscriptStep]:
        """Record one step; an exception marks it as failed and is raised again."""
        step = TranscriptStep(title, self._now())
        self.steps.append(step)
        self._view.began(step)
        try:
            yield step
        except BaseException:
            self._end(step, StepOutcome.FAILED)
            raise
        self._end(step, StepOutcome.DONE)

    def saw(self, evidence: str) -> None:
        """Add evidence to the running or last step."""
        step = self.steps[-1]
        step.evidence.append(evidence)
        self._view.saw(step, evidence)

    def shows(self, **changes: object) -> None:
        """Change the picture: fields of `Picture` by name."""
        # `replace` rejects unknown names; the types of the values are not checked.
        self.picture = replace(self.picture, **changes)  # type: ignore[arg-type]
        self.pictures.append((self._now(), self.picture))
        self._view.shows(self.picture)

    @property
    def seconds(self) -> float:
        return self._now()

    def _end(self, step: TranscriptStep, outcome: StepOutcome) -> None:
        step.outcome = outcome
        step.ended_seconds = self._now()
        self._view.ended(step)

    def _now(self) -> float:
        return self._clock() - self._start
