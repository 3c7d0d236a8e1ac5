"""Asking the checks of a stage, now. What keeps a check from looking is what it has found."""

from collections.abc import Sequence
from typing import Final

from umbilical.checks.check import Check, Finding, Outcome, Verdict, failed
from umbilical.fault import Fault, HardwayError
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Stage

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
    """Let a stage end.

    Raises:
        ChecksFailed: not yet.
    """
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
    return _told(check, verdict)


def _told(check: Check[Site], verdict: Verdict) -> Finding:
    return Finding(check.id, check.title, check.why, check.fix, verdict.outcome, verdict.evidence)
