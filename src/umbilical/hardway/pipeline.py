"""Runs stages in order. A stage whose inputs are unchanged and whose checks pass is skipped.

Every side effect is recorded, with its undo, before it is made. Steps are idempotent, so a run that was killed at any
moment resumes when the same command runs again.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from umbilical.checks.check import Finding, has_failed
from umbilical.fault import Fault, HardwayError
from umbilical.hardway.journal import EventKind
from umbilical.hardway.ledger import Ledger, Notes, RecordingReporter, RunReporter
from umbilical.hardway.site import Site
from umbilical.hardway.stage import (
    ChecksFailed,
    Producing,
    Rerendering,
    Stage,
    Step,
    Superseded,
    enter,
    findings,
    refuse_failed,
)
from umbilical.hardway.state import RunState, StageStatus
from umbilical.host.processes import Interrupts

MAX_ROUNDS: Final = 4
"""Extract, render with what was extracted, find no further steps; one round spare."""

Ask = Callable[[Stage, Step], bool]
"""Shows a step before it runs; False ends the run."""


class StageEnding(Enum):
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class StageResult:
    """Result of one stage in a run."""

    stage: Stage
    ending: StageEnding
    seconds: float
    findings: tuple[Finding, ...] = ()
    failure: Fault | None = None
    reason: str = ""
    """Why it was skipped."""


class Pipeline:
    """One run, by the holder of the lock."""

    def __init__(
        self,
        stages: Sequence[Stage],
        site: Site,
        ledger: Ledger,
        reporter: RunReporter,
        ask: Ask | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stages = stages
        self._ledger = ledger
        self._reporter = reporter
        self._ask = ask
        self._clock = clock
        self._notes = Notes(ledger)
        self._site = site
        site.notes = self._notes
        site.reporter = RecordingReporter(reporter, ledger, clock)
        self.results: list[StageResult] = []

    def run(self, first: int, last: int, *, force: bool = False) -> None:
        """Run the stages from `first` to `last`. `force`: also those that are done.

        Raises:
            Fault: the failure of the first stage that failed; `results` has all stages so far.
            KeyboardInterrupt: the user ended the run; the record has the position.
        """
        chosen = [stage for stage in self._stages if first <= stage.number <= last]
        self._ledger.add(EventKind.RUN_BEGAN, first=first, last=last)
        with Interrupts() as interrupts:
            mark_stale(self._stages, self._site, self._ledger)
            for stage in chosen:
                self._refuse_unfounded(stage)
                self._bring(stage, interrupts, force=force)
        self._ledger.add(EventKind.RUN_ENDED, first=first, last=last)

    def _refuse_unfounded(self, stage: Stage) -> None:
        known = {one.number: one for one in self._stages}
        for number in stage.needs:
            status = self._ledger.state.stage(number).status
            if number in known and status is not StageStatus.DONE and not superseded(known[number], self._ledger.state):
                what = f"stage {stage.number:02} {stage.name} was not started"
                why = f"it needs stage {number:02} {known[number].name}, which is {status.value}"
                raise HardwayError("UMB724", what, why, f"umbilical stage run {number}..{stage.number}")

    def _bring(self, stage: Stage, interrupts: Interrupts, *, force: bool) -> None:
        start = self._clock()
        self._notes.stage = stage.number
        self._site.reporter.stage(stage.number, stage.title)
        try:
            reason, found = self._why_skip(stage, interrupts, force=force)
            if not reason:
                found = self._do(stage, interrupts, start)
        except BaseException as error:
            self._fail(stage, error, self._clock() - start)
            raise
        if reason:
            self._ledger.add(EventKind.STAGE_SKIPPED, stage=stage.number, reason=reason)
        ending = StageEnding.SKIPPED if reason else StageEnding.DONE
        self._end(StageResult(stage, ending, self._clock() - start, tuple(found), None, reason))

    def _why_skip(self, stage: Stage, interrupts: Interrupts, *, force: bool) -> tuple[str, list[Finding]]:
        record = self._ledger.state.stage(stage.number)
        if (later := superseded(stage, self._ledger.state)) is not None:
            # Even with force: a bootstrap node that boots again creates a second, empty cluster with the same keys.
            return f"stage {later:02} superseded it", []
        if force or record.status is not StageStatus.DONE:
            return "", []
        with interrupts.heard():
            found = findings(stage, self._site)
        return ("", []) if has_failed(found) else ("nothing changed, all checks pass", found)

    def _do(self, stage: Stage, interrupts: Interrupts, start: float) -> list[Finding]:
        self._ledger.add(EventKind.STAGE_BEGAN, stage=stage.number, inputs=dict(stage.inputs(self._site)))
        with interrupts.heard():
            enter(stage, self._site)
        self._do_steps(stage, interrupts)
        with interrupts.heard():
            found = findings(stage, self._site)
        refuse_failed(stage, found)
        outputs = dict(stage.outputs(self._site)) if isinstance(stage, Producing) else {}
        seconds = round(self._clock() - start, 3)
        checks = check_values(found)
        self._ledger.add(EventKind.STAGE_DONE, stage=stage.number, outputs=outputs, checks=checks, seconds=seconds)
        return found

    def _do_steps(self, stage: Stage, interrupts: Interrupts) -> None:
        """Run all steps. If their output is an input of the rendering, load the site again and run new steps."""
        known: set[str] = set()
        for _ in range(MAX_ROUNDS):
            with interrupts.heard():
                steps = [step for step in stage.steps(self._site) if step.title not in known]
            for step in steps:
                self._step(stage, step, interrupts)
            known.update(step.title for step in steps)
            if not steps or not isinstance(stage, Rerendering) or not stage.rerenders(self._site):
                return
            with interrupts.heard():
                self._reload()

    def _step(self, stage: Stage, step: Step, interrupts: Interrupts) -> None:
        if self._ask is not None:
            with interrupts.heard():
                if not self._ask(stage, step):
                    raise KeyboardInterrupt
        self._site.reporter.step(step.title, step.command)
        undo = None if step.undo is None else {"name": step.undo.name, "values": dict(step.undo.values)}
        self._ledger.add(EventKind.STEP_BEGAN, stage=stage.number, title=step.title, command=step.command, undo=undo)
        with interrupts.heard():
            step.act()
        self._ledger.add(EventKind.STEP_ENDED, stage=stage.number, title=step.title)

    def _fail(self, stage: Stage, error: BaseException, seconds: float) -> None:
        if isinstance(error, Exception):
            found = error.findings if isinstance(error, ChecksFailed) else ()
            failure, checks = failure_value(error), check_values(found)
            self._ledger.add(EventKind.STAGE_FAILED, stage=stage.number, failure=failure, checks=checks)
            fault = error if isinstance(error, Fault) else None
            self._end(StageResult(stage, StageEnding.FAILED, seconds, found, fault))
        elif isinstance(error, KeyboardInterrupt):
            # A finished stage that was only being checked is still done.
            if self._ledger.state.stage(stage.number).status is StageStatus.RUNNING:
                self._ledger.add(EventKind.STAGE_INTERRUPTED, stage=stage.number)
            self._end(StageResult(stage, StageEnding.INTERRUPTED, seconds))

    def _end(self, result: StageResult) -> None:
        self.results.append(result)
        self._reporter.ended(result.stage.number, result.ending.value, result.seconds)

    def _reload(self) -> None:
        before = self._site
        if before.reload is not None:
            fresh = before.reload()
            # Replace only what is rendered; keep the objects of this run.
            rendered = {"cluster", "assets", "hashes", "has_tunnel", "kubeconfig", "files", "operators"}
            self._site = replace(before, **{name: getattr(fresh, name) for name in rendered})
            mark_stale(self._stages, self._site, self._ledger)


def superseded(stage: Stage, state: RunState) -> int | None:
    """Return the number of the later stage that superseded this one, if any."""
    if not isinstance(stage, Superseded):
        return None
    later = state.stage(stage.ends_with)
    is_over = later.status in (StageStatus.DONE, StageStatus.STALE) or later.no_return is not None
    return stage.ends_with if is_over else None


def finished(stages: Sequence[Stage], state: RunState) -> list[Stage]:
    """Return the stages that are done, also stale ones, and that no later stage superseded."""
    done = (StageStatus.DONE, StageStatus.STALE)
    return [stage for stage in stages if state.stage(stage.number).status in done and superseded(stage, state) is None]


def mark_stale(stages: Sequence[Stage], site: Site, ledger: Ledger) -> None:
    """Record stages whose inputs changed as stale, and all stages that need them."""
    reasons = stale(stages, site, ledger.state)
    for number, because in reasons.items():
        if ledger.state.stage(number).status is StageStatus.DONE:
            ledger.add(EventKind.STAGE_STALE, stage=number, because=because)


def stale(stages: Sequence[Stage], site: Site, state: RunState) -> dict[int, str]:
    """Return finished stages whose inputs changed, each with the reason."""
    reasons: dict[int, str] = {}
    for stage in stages:
        record = state.stage(stage.number)
        if record.status not in (StageStatus.DONE, StageStatus.STALE) or superseded(stage, state) is not None:
            continue
        changed = _changed(record.inputs, dict(stage.inputs(site)))
        base = next((need for need in stage.needs if need in reasons), None)
        if changed or record.status is StageStatus.STALE:
            reasons[stage.number] = f"changed since: {', '.join(changed)}" if changed else record.because
        elif base is not None:
            reasons[stage.number] = f"stage {base:02} is stale"
    return reasons


def check_values(found: Sequence[Finding]) -> list[dict[str, str]]:
    return [{"id": one.id, "outcome": one.outcome.value, "evidence": one.evidence} for one in found]


def failure_value(error: Exception) -> dict[str, str]:
    if isinstance(error, Fault):
        return {"code": error.code, "what": error.what, "why": error.why, "next": error.remedy}
    why = f"{type(error).__name__}: {error}"
    return {"code": "UMB099", "what": "umbilical failed (a bug)", "why": why, "next": "report it with this message"}


def _changed(before: Any, now: Any) -> list[str]:
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
