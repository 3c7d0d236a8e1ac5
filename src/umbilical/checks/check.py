"""One check and its result, as `verify`, `analyze`, live checks and the lab use them."""

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
    """Result of a predicate: the outcome, and the evidence in one line."""

    outcome: Outcome
    evidence: str


def passed(evidence: str = "") -> Verdict:
    return Verdict(Outcome.PASSED, evidence)


def failed(evidence: str) -> Verdict:
    return Verdict(Outcome.FAILED, evidence)


def warned(evidence: str) -> Verdict:
    return Verdict(Outcome.WARNED, evidence)


def skipped(reason: str) -> Verdict:
    """The check does not apply, or its input is missing; the reason names which."""
    return Verdict(Outcome.SKIPPED, reason)


@dataclass(frozen=True)
class Check(Generic[Facts]):
    id: str
    """Stable: users filter by it and tickets quote it."""
    title: str
    """The claim that holds when the check passes."""
    why: str
    """What breaks when the claim does not hold."""
    fix: str
    """What to do next, as a command if possible."""
    judge: Callable[[Facts], Verdict]


class Doubt(str):
    """A problem that makes a check warn instead of fail."""

    __slots__ = ()


def fault_check(
    identifier: str,
    title: str,
    why: str,
    fix: str,
    search: Callable[[Facts], Iterable[str]],
    *needs: Callable[[Facts], str | None],
) -> Check[Facts]:
    """Make a check that passes when `search` yields nothing. A need that returns a reason skips it."""

    def judge(facts: Facts) -> Verdict:
        # In order: a later need may rely on an earlier one.
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
    """A check's texts and its verdict: all that a report needs."""

    id: str
    title: str
    why: str
    fix: str
    outcome: Outcome
    evidence: str


def run_checks(checks: Iterable[Check[Facts]], facts: Facts) -> list[Finding]:
    """Run every check in order; a failed check does not stop the others."""
    findings = []
    for check in checks:
        verdict = check.judge(facts)
        findings.append(Finding(check.id, check.title, check.why, check.fix, verdict.outcome, verdict.evidence))
    return findings


def has_failed(findings: Iterable[Finding]) -> bool:
    return any(finding.outcome is Outcome.FAILED for finding in findings)
