"""What a stage is: inputs, steps, and checks of its result.

A `Condition` has one probe for three uses: the wait of a stage, its check, and `stage status`. An error while a check
runs counts as a failed check.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

from umbilical.checks.check import Check, Finding, Outcome, Verdict, failed, passed
from umbilical.fault import Fault, HardwayError
from umbilical.hardway.site import Site
from umbilical.hardway.waiting import KnownFailure, wait
from umbilical.host.waiting import NotYet

NEVER: Final = "never"


@dataclass(frozen=True)
class Undo:
    """How to undo a side effect, as written to the record: a name of `undoing.UNDOERS` and its values.

    The name NEVER marks a point of no return: `values` has `why`. No secrets: the record is readable.
    """

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One action of a stage; idempotent, because a resumed run repeats it."""

    title: str
    """Imperative: `join etcd on master-0`."""
    command: str
    """The equivalent command line; `--step` shows it."""
    act: Callable[[], None]
    undo: Undo | None = None
    """Recorded before `act` is called."""


class Stage(Protocol):
    @property
    def number(self) -> int: ...

    @property
    def name(self) -> str:
        """One word or two: `pki`, `static-pods`."""

    @property
    def title(self) -> str: ...

    @property
    def needs(self) -> tuple[int, ...]:
        """Stages that this one depends on: when one of them is stale, this one is too."""

    def inputs(self, site: Site) -> Mapping[str, str]:
        """Name -> content hash of the inputs. Other values make the stage stale."""

    def steps(self, site: Site) -> Sequence[Step]: ...

    def own_checks(self, site: Site) -> Sequence[Check[Site]]:
        """Checks that are neither lint rules nor found by looking at machines: `explain` lists them for an example."""

    def checks(self, site: Site) -> Sequence[Check[Site]]: ...


@runtime_checkable
class Producing(Protocol):
    """A stage with outputs for the record."""

    def outputs(self, site: Site) -> Mapping[str, str]:
        """Name -> content hash."""


@runtime_checkable
class Superseded(Protocol):
    """A stage whose result a later one removes on purpose: the pivot removes the bootstrap node."""

    @property
    def ends_with(self) -> int:
        """The later stage: once it is done or past its point of no return, this one is no longer checked."""


@runtime_checkable
class Rerendering(Protocol):
    """A stage whose output is an input of artifacts: afterwards the site is loaded again."""

    def rerenders(self, site: Site) -> bool: ...

    def later_steps(self, site: Site) -> Sequence[Step]:
        """Steps that `steps` has only after the site is loaded again; to be shown before."""


def shown_steps(stage: Stage, site: Site) -> list[Step]:
    """List the steps for readers, with those that the stage gets by its own output."""
    return [*stage.steps(site), *(stage.later_steps(site) if isinstance(stage, Rerendering) else ())]


ConditionProbe = Callable[[Site], str]
"""Returns the observation in a few words; raises NotYet or a Fault."""


@dataclass(frozen=True)
class Condition:
    """Something that must hold, how to probe it, and what to do if it does not."""

    id: str
    title: str
    why: str
    fix: str
    probe: ConditionProbe
    known_failures: Sequence[KnownFailure] = ()

    @property
    def check(self) -> Check[Site]:
        return Check(self.id, self.title, self.why, self.fix, self._verdict)

    def wait(self, site: Site, timeout_seconds: float, poll_seconds: float = 1.0) -> str:
        """Probe until the condition holds, and report the observation. Raises StageTimeout."""
        seen = wait(
            site.reporter,
            self.title,
            lambda: self._probe(site),
            timeout_seconds,
            remedy=self.fix,
            known_failures=self.known_failures,
            poll_seconds=poll_seconds,
            sleep=site.sleep,
        )
        site.reporter.saw(f"{self.title}: {seen}" if seen else self.title)
        return seen

    def _probe(self, site: Site) -> str:
        try:
            return self.probe(site)
        except Fault as fault:
            raise NotYet(fault.brief) from None

    def _verdict(self, site: Site) -> Verdict:
        try:
            return passed(self._probe(site))
        except NotYet as error:
            return failed(str(error))


def wait_for(site: Site, seconds: float, *conditions: Condition) -> None:
    """Wait for the conditions one after the other, each up to `seconds`."""
    for condition in conditions:
        condition.wait(site, seconds)


FIRST_ON_MACHINES: Final = 9
"""First stage that connects to machines; before it the network may not exist."""


class ChecksFailed(HardwayError):
    """Describes the first check that failed; `findings` has all checks."""

    def __init__(self, what: str, why: str, remedy: str, found: Sequence[Finding]) -> None:
        super().__init__("UMB723", what, why, remedy)
        self.findings = tuple(found)


def findings(stage: Stage, site: Site) -> list[Finding]:
    """Run all checks of a stage in order; a failed one does not stop the others."""
    enter(stage, site)
    return [_finding(check, site) for check in stage.checks(site)]


def enter(stage: Stage, site: Site) -> None:
    """Enter the machine network, for stages that need it."""
    if stage.number >= FIRST_ON_MACHINES:
        site.machines.enter()


def refuse_failed(stage: Stage, found: Sequence[Finding]) -> None:
    """Raise ChecksFailed if a check failed."""
    for one in found:
        if one.outcome is Outcome.FAILED:
            others = sum(other.outcome is Outcome.FAILED for other in found) - 1
            more = f" (and {others} more)" if others else ""
            what = f"stage {stage.number:02} {stage.name}: check {one.id} failed: {one.title}{more}"
            raise ChecksFailed(what, one.evidence or one.why, one.fix, found)


def _finding(check: Check[Site], site: Site) -> Finding:
    try:
        verdict = check.judge(site)
    except Fault as fault:
        verdict = failed(fault.brief)
    except (OSError, TimeoutError) as error:
        verdict = failed(f"the check could not run: {str(error) or type(error).__name__}")
    return Finding(check.id, check.title, check.why, check.fix, verdict.outcome, verdict.evidence)
