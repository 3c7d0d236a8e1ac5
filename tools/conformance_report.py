"""Reads JUnit reports of Kubernetes' own test suite, and writes the table of docs/conformance.md."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

CONFORMANCE: Final = "[Conformance]"
# `[It] [sig-apps] Deployment should ... [Conformance]`, with more labels after it.
_PREFIX: Final = re.compile(r"^\[It\] ")
# The suite's own steps: `[SynchronizedBeforeSuite]`, `[ReportAfterSuite] ...`.
STEPS: Final = ("[Synchronized", "[Before", "[After", "[Report", "[Deferred")
SUITE_TIMEOUT: Final = "A suite timeout occurred"
_OWN: Final = "skipped - "
_SEVERAL_LINES: Final = re.compile(r"\s+")
MESSAGE_LENGTH: Final = 160


class SpecResult(Enum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """The spec itself found that it does not apply."""
    NOT_RUN = "not run"
    """The time was over, or the spec was not selected."""


@dataclass(frozen=True)
class SpecOutcome:
    name: str
    result: SpecResult
    seconds: float
    message: str = ""


@dataclass(frozen=True)
class LeftOut:
    """A spec that is not run, and why."""

    pattern: str
    reason: str


@dataclass(frozen=True)
class RunResult:
    """One row of the table."""

    title: str
    outcomes: tuple[SpecOutcome, ...]
    minutes: float
    note: str = ""

    @property
    def is_good(self) -> bool:
        """Whether specs ran and none failed."""
        return self.count(SpecResult.PASSED) > 0 and not self.failed

    def count(self, result: SpecResult) -> int:
        return sum(1 for outcome in self.outcomes if outcome.result is result)

    @property
    def failed(self) -> list[SpecOutcome]:
        return [outcome for outcome in self.outcomes if outcome.result is SpecResult.FAILED]


def read_left_out(text: str) -> list[LeftOut]:
    """Read the list of specs that are not run: a pattern, ` | `, the reason."""
    rows = [line.split(" | ", 1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [LeftOut(pattern.strip(), reason.strip()) for pattern, reason in rows]


def read_outcomes(report: Path) -> tuple[SpecOutcome, ...]:
    """Return the outcome of every conformance spec, and of the suite's own steps that failed."""
    # Written by the suite that this tool has just run.
    found = [_outcome(case) for case in ElementTree.parse(report).getroot().iter("testcase")]
    return tuple(one for one in found if CONFORMANCE in one.name or _is_broken_step(one))


def _is_broken_step(outcome: SpecOutcome) -> bool:
    """Whether the suite's start or end failed: with a failed start no spec runs, and none fails."""
    return outcome.result is SpecResult.FAILED and outcome.name.startswith(STEPS)


def _outcome(case: ElementTree.Element) -> SpecOutcome:
    name = _PREFIX.sub("", case.get("name", ""))
    result, said = _result(case)
    return SpecOutcome(name, result, float(case.get("time") or 0), _SEVERAL_LINES.sub(" ", said).strip())


def _result(case: ElementTree.Element) -> tuple[SpecResult, str]:
    for broken in (*case.iter("failure"), *case.iter("error")):
        # The limit of the whole run is no fault of the spec.
        said = broken.text or ""
        is_cut = broken.get("type") == "interrupted" or SUITE_TIMEOUT in said
        return SpecResult.NOT_RUN if is_cut else SpecResult.FAILED, said
    for skipped in case.iter("skipped"):
        said = skipped.get("message") or ""
        # A spec that was never selected has no reason of its own.
        return (SpecResult.SKIPPED, said.removeprefix(_OWN)) if said.startswith(_OWN) else (SpecResult.NOT_RUN, "")
    return SpecResult.PASSED, ""


def table(versions: Mapping[str, str], results: Sequence[RunResult], left_out: Iterable[LeftOut]) -> str:
    """Return the results as Markdown."""
    lines = ["| what | version |", "|---|---|", *(f"| {name} | {value} |" for name, value in versions.items()), ""]
    lines += ["| run | passed | failed | skipped themselves | not reached | minutes |", "|---|---|---|---|---|---|"]
    lines += [_row(result) for result in results]
    lines += ["", *(result.note for result in results if result.note)]
    broken = [(result.title, outcome) for result in results for outcome in result.failed]
    if broken:
        lines += ["", "| failed spec | run | message |", "|---|---|---|"]
        lines += [f"| {_cell(one.name)} | {title} | {_cell(one.message[:MESSAGE_LENGTH])} |" for title, one in broken]
    omitted = list(left_out)
    if omitted:
        lines += ["", "| left out | reason |", "|---|---|"]
        lines += [f"| {_cell(one.pattern)} | {_cell(one.reason)} |" for one in omitted]
    return "\n".join(lines)


def _row(result: RunResult) -> str:
    counts = " | ".join(str(result.count(kind)) for kind in SpecResult)
    return f"| {result.title} | {counts} | {result.minutes:.0f} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
