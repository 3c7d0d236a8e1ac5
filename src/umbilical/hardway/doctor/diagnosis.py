"""What the doctor says of one thing that is wrong: three lines, as of every failure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from umbilical.hardway.lessons.catalogue import LESSONS
from umbilical.hardway.waiting import Signature


@dataclass(frozen=True)
class Diagnosis:
    id: str
    """Of a rule, a check, a code or a signal."""
    hop: str
    """Where on the way it is: a file, the load balancer, etcd of a node."""
    what: str
    why: str
    """What was seen."""
    remedy: str
    lesson: str = ""
    """The lesson whose fault looks like this."""

    def __str__(self) -> str:
        known = f" (known as {self.lesson}: umbilical explain {self.lesson})" if self.lesson else ""
        return f"{self.id} {self.hop}: {self.what}\n  why: {self.why}\n  next: {self.remedy}{known}"


def lesson_of(rule: str, evidence: str) -> str:
    """Name the lesson that a rule's complaint reminds of; empty if none."""
    found = (one.id for one in LESSONS if rule in one.rules and re.search(one.sign, evidence))
    return next(found, "")


def lesson_live(evidence: str) -> str:
    """The same for what was seen on machines."""
    found = (one.id for one in LESSONS if one.live is not None and re.search(one.live.sign, evidence))
    return next(found, "")


def hinted(evidence: str, remedy: str, signatures: Iterable[Signature]) -> str:
    """Put what is known of such a failure before the usual remedy."""
    hints: Sequence[str] = [one.hint for one in signatures if re.search(one.pattern, evidence)]
    return f"{hints[0]}; then {remedy}" if hints else remedy
