"""What a stage is: inputs, steps that bring about what it is for, and checks that say whether that is so now.

A `Sight` is one look that serves three: the wait of a stage, its check, and `stage status`. An error while a check runs
counts as a failed check.
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
    """The inverse of a side effect, as it is written into the record: a name of `undoing.UNDOERS` and its values.

    The name NEVER marks a point of no return: `values` has `why`. No secrets: the record is no place for them.
    """

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One action of a stage; idempotent, since a killed run is resumed by doing it again."""

    title: str
    """Imperative: `join etcd on master-0`."""
    command: str
    """What one would type by hand for it; `--step` shows it."""
    act: Callable[[], None]
    undo: Undo | None = None
    """Written down before `act` is called."""


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
        """Stages whose outcome this one builds on: when one of them changes, this one is stale."""

    def inputs(self, site: Site) -> Mapping[str, str]:
        """Name -> content hash of what this stage was made from. Other values mean: stale."""

    def steps(self, site: Site) -> Sequence[Step]: ...

    def checks(self, site: Site) -> Sequence[Check[Site]]: ...


@runtime_checkable
class Producing(Protocol):
    """A stage that says what came of it, for the record."""

    def outputs(self, site: Site) -> Mapping[str, str]:
        """Name -> content hash."""


@runtime_checkable
class Superseded(Protocol):
    """A stage whose outcome a later one takes away on purpose: bootstrap's ends with the pivot."""

    @property
    def ends_with(self) -> int:
        """The later stage: once that is done, or past its point of no return, this one is not asked any more."""


@runtime_checkable
class Rerendering(Protocol):
    """A stage whose outcome artifacts are rendered from: afterwards the site is loaded anew."""

    def rerenders(self, site: Site) -> bool: ...


ConditionProbe = Callable[[Site], str]
"""Returns what was seen, in a few words; raises NotYet or a Fault."""


@dataclass(frozen=True)
class Condition:
    """Something that is to be so, how it is looked at, and what to do if it is not."""

    id: str
    title: str
    why: str
    fix: str
    probe: ConditionProbe
    signatures: Sequence[KnownFailure] = ()

    @property
    def check(self) -> Check[Site]:
        return Check(self.id, self.title, self.why, self.fix, self._judge)

    def wait(self, site: Site, timeout_seconds: float, poll_seconds: float = 1.0) -> str:
        """Look until it is so, and tell what was seen. Raises StageTimeout: it did not become so."""
        seen = wait(
            site.reporter,
            self.title,
            lambda: self._probe(site),
            timeout_seconds,
            remedy=self.fix,
            signatures=self.signatures,
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

    def _judge(self, site: Site) -> Verdict:
        try:
            return passed(self._probe(site))
        except NotYet as error:
            return failed(str(error))


def wait_for(site: Site, seconds: float, *conditions: Condition) -> None:
    """Wait for one after the other, each for as long."""
    for condition in conditions:
        condition.wait(site, seconds)


FIRST_ON_MACHINES: Final = 9
"""From this stage on there are machines to be reached; before it the network may not exist."""


class ChecksFailed(HardwayError):
    """The first check that failed, in its own words; all of them are with it."""

    def __init__(self, what: str, why: str, remedy: str, found: Sequence[Finding]) -> None:
        super().__init__("UMB723", what, why, remedy)
        self.findings = tuple(found)


def findings(stage: Stage, site: Site) -> list[Finding]:
    """Ask every check of a stage in order. One that fails does not stop the others."""
    enter(stage, site)
    return [_finding(check, site) for check in stage.checks(site)]


def enter(stage: Stage, site: Site) -> None:
    """Take this process to the machine network, for stages that need it."""
    if stage.number >= FIRST_ON_MACHINES:
        site.machines.enter()


def refuse_failed(stage: Stage, found: Sequence[Finding]) -> None:
    """Let a stage end. Raises ChecksFailed: not yet."""
    for one in found:
        if one.outcome is Outcome.FAILED:
            others = sum(other.outcome is Outcome.FAILED for other in found) - 1
            more = f" (and {others} more of its checks)" if others else ""
            what = f"stage {stage.number:02} {stage.name}: {one.id} does not hold: {one.title}{more}"
            raise ChecksFailed(what, one.evidence or one.why, one.fix, found)


def _finding(check: Check[Site], site: Site) -> Finding:
    try:
        verdict = check.judge(site)
    except Fault as fault:
        verdict = failed(fault.brief)
    except (OSError, TimeoutError) as error:
        verdict = failed(f"it could not be looked at: {str(error) or type(error).__name__}")
    return Finding(check.id, check.title, check.why, check.fix, verdict.outcome, verdict.evidence)
