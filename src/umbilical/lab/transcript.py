"""A story is told in steps: each has a title, a time, evidence, and an end. Who tells it (a live view, plain lines,
a report) is somebody else: a `Teller`. Everything told is kept, so that a report can be written afterwards.
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
    """Since the story began."""
    outcome: StepOutcome = StepOutcome.RUNNING
    ended_seconds: float | None = None
    evidence: list[str] = field(default_factory=list)
    """What was seen, in the words of the program that said it."""

    @property
    def seconds(self) -> float:
        return 0.0 if self.ended_seconds is None else self.ended_seconds - self.started_seconds


class CallResult(Enum):
    """How the last call from the bootstrap kube-apiserver to the webhook ended."""

    NONE = "none"
    UNREACHABLE = "unreachable"
    ALLOWED = "allowed"
    DENIED = "denied"


@dataclass(frozen=True)
class Picture:
    """What a viewer sees of the topology at one moment."""

    nodes: tuple[str, ...] = ()
    apiserver: bool = False
    """The bootstrap node's, or its stand-in."""
    production_apiserver: bool = False
    server: bool = False
    agents: tuple[str, ...] = ()
    """Nodes whose agent is connected."""
    webhook: str | None = None
    """The node that the webhook's pod runs on."""
    call: CallResult = CallResult.NONE
    production_call: CallResult = CallResult.NONE
    on_loopback: bool = False
    """There are no networks: nothing is missing between the nodes but the tunnel."""

    @property
    def production_node(self) -> str | None:
        """The first control-plane node has that kube-apiserver; scenarios put the webhook onto a worker."""
        return next((name for name in self.nodes if name.startswith("master")), None)

    @property
    def gap(self) -> str:
        """What keeps a call without the tunnel from the webhook."""
        return "no tunnel" if self.on_loopback else "no route"


class TranscriptView(Protocol):
    def began(self, step: TranscriptStep) -> None: ...
    def saw(self, step: TranscriptStep, evidence: str) -> None: ...
    def ended(self, step: TranscriptStep) -> None:
        """Its outcome tells whether well or not."""

    def shows(self, picture: Picture) -> None: ...


class NoView:
    """Tells nobody."""

    def began(self, step: TranscriptStep) -> None: ...
    def saw(self, step: TranscriptStep, evidence: str) -> None: ...
    def ended(self, step: TranscriptStep) -> None: ...
    def shows(self, picture: Picture) -> None: ...


class Transcript:
    """What happens, as it happens. Steps do not nest."""

    def __init__(
        self, title: str, view: TranscriptView | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.title = title
        self.steps: list[TranscriptStep] = []
        self.figures: dict[str, str] = {}
        """The closing summary: agents, calls, bytes, p50, in the order in which they were set."""
        self.not_shown = ""
        """What this machine does not let the story show; for the report."""
        self.picture = Picture()
        self.pictures: list[tuple[float, Picture]] = []
        self._view: TranscriptView = view or NoView()
        self._clock = clock
        self._start = clock()

    @contextmanager
    def step(self, title: str) -> Iterator[TranscriptStep]:
        """Do one thing; what is raised inside makes it a failed step and goes on its way."""
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
        """Add evidence to the step that runs, or to the last one."""
        step = self.steps[-1]
        step.evidence.append(evidence)
        self._view.saw(step, evidence)

    def shows(self, **changes: object) -> None:
        """Change the picture: fields of `Picture` by name."""
        # A name that is no field is refused by `replace` itself; that its value fits is the callers' to know.
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
