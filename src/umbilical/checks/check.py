"""One check, and what came of it. `verify`, `analyze`, live checks and the lab all speak this."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final, Generic, TypeVar

Facts = TypeVar("Facts")
MAX_FAULTS: Final = 20


class Outcome(Enum):
    PASSED = "passed"
    FAILED = "failed"
    WARNED = "warned"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Verdict:
    """What a predicate says: the outcome, and the evidence it saw in one line."""

    outcome: Outcome
    evidence: str


def passed(evidence: str = "") -> Verdict:
    return Verdict(Outcome.PASSED, evidence)


def failed(evidence: str) -> Verdict:
    return Verdict(Outcome.FAILED, evidence)


def warned(evidence: str) -> Verdict:
    return Verdict(Outcome.WARNED, evidence)


def skipped(reason: str) -> Verdict:
    """The check does not apply here, or what it needs is missing; the reason says which."""
    return Verdict(Outcome.SKIPPED, reason)


@dataclass(frozen=True)
class Check(Generic[Facts]):
    id: str
    """Short and stable: users filter by it and tickets quote it."""
    title: str
    """What holds when it passes, as a claim."""
    why: str
    """What breaks when it does not hold."""
    fix: str
    """What to do next; a command where one exists."""
    judge: Callable[[Facts], Verdict]


class Doubt(str):
    """A fault that warns, in a check that else fails."""

    __slots__ = ()


def fault_check(
    identifier: str,
    title: str,
    why: str,
    fix: str,
    search: Callable[[Facts], Iterable[str]],
    *needs: Callable[[Facts], str | None],
) -> Check[Facts]:
    """Make a check that passes when `search` finds no fault; a need that tells why it does not apply skips it."""

    def judge(facts: Facts) -> Verdict:
        # One after the other: a later need may rely on an earlier one.
        for need in needs:
            reason = need(facts)
            if reason is not None:
                return skipped(reason)
        faults = list(islice(search(facts), MAX_FAULTS))
        hard = [fault for fault in faults if not isinstance(fault, Doubt)]
        if hard:
            return failed("; ".join(hard))
        return warned("; ".join(faults)) if faults else passed()

    return Check(identifier, title, why, fix, judge)


@dataclass(frozen=True)
class Finding:
    """A check's own words together with its verdict: all that a report needs."""

    id: str
    title: str
    why: str
    fix: str
    outcome: Outcome
    evidence: str


def judge(checks: Iterable[Check[Facts]], facts: Facts) -> list[Finding]:
    """Ask every check in order. One that fails does not stop the others."""
    findings = []
    for check in checks:
        verdict = check.judge(facts)
        findings.append(Finding(check.id, check.title, check.why, check.fix, verdict.outcome, verdict.evidence))
    return findings


def has_failed(findings: Iterable[Finding]) -> bool:
    return any(finding.outcome is Outcome.FAILED for finding in findings)
