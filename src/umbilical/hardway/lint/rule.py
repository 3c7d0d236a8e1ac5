"""How a rule of the lint is written: an id, a severity, the profiles it is for, and a search for faults."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final

from umbilical.checks.check import Check, Verdict, failed, passed, skipped, warned
from umbilical.hardway.config.cluster import Profile
from umbilical.hardway.lint.facts import Facts, Unreadable

MAX_FAULTS: Final = 20
BOTH: Final = frozenset(Profile)
OPENSHIFT: Final = frozenset({Profile.OPENSHIFT})
KUBERNETES: Final = frozenset({Profile.KUBERNETES})

Search = Callable[[Facts], Iterable[str]]
Need = Callable[[Facts], str | None]
"""Says why a rule does not apply, or None."""


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


class Doubt(str):
    """A fault that warns, in a rule that else fails."""

    __slots__ = ()


@dataclass(frozen=True)
class Rule:
    id: str
    severity: Severity
    profiles: frozenset[Profile]
    check: Check[Facts]


def rule(
    identifier: str,
    severity: Severity,
    profiles: frozenset[Profile],
    title: str,
    why: str,
    fix: str,
    search: Search,
    *needs: Need,
) -> Rule:
    """Make a rule that holds when `search` finds no fault. What cannot be read is a fault, never a crash."""

    def judge(facts: Facts) -> Verdict:
        if facts.cluster.profile not in profiles:
            return skipped(f"it is not for the profile {facts.cluster.profile.value}")
        for need in needs:
            reason = need(facts)
            if reason is not None:
                return skipped(reason)
        return _verdict(severity, _found(search, facts))

    return Rule(identifier, severity, profiles, Check(identifier, title, why, fix, judge))


def tunnel(facts: Facts) -> str | None:
    return None if facts.has_tunnel else "there is no tunnel (konnectivity: off)"


def kube_proxy(facts: Facts) -> str | None:
    return None if facts.cluster.has_kube_proxy else "there is no kube-proxy (kubeProxy: off)"


def _found(search: Search, facts: Facts) -> list[str]:
    try:
        return list(islice(search(facts), MAX_FAULTS))
    except Unreadable as error:
        return [str(error)]


def _verdict(severity: Severity, faults: list[str]) -> Verdict:
    hard = [fault for fault in faults if not isinstance(fault, Doubt)]
    if hard and severity is Severity.ERROR:
        return failed("; ".join(hard))
    return warned("; ".join(faults)) if faults else passed()
