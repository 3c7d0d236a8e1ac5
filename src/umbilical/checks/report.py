"""Findings as a table, JSON or JUnit.

Evidence comes from untrusted files: characters that could control a terminal, reverse text or break XML are escaped.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final
from xml.etree import ElementTree

from umbilical.checks.check import Finding, Outcome

API_VERSION: Final = "umbilical.dev/v1alpha1"
# Longer lines would hide the next finding; JSON and JUnit are not truncated.
MAX_LINE: Final = 400

_SIGNS: Final = {Outcome.PASSED: "√", Outcome.WARNED: "‼", Outcome.FAILED: "×", Outcome.SKIPPED: "-"}
_WORDS: Final = {
    Outcome.PASSED: "[ok]  ",
    Outcome.WARNED: "[warn]",
    Outcome.FAILED: "[FAIL]",
    Outcome.SKIPPED: "[skip]",
}
_COLOURS: Final = {Outcome.PASSED: "32", Outcome.WARNED: "33", Outcome.FAILED: "31", Outcome.SKIPPED: "2"}
_INDENT: Final = "    "
_DETAILED: Final = (Outcome.FAILED, Outcome.WARNED)


def summary(findings: Iterable[Finding]) -> dict[str, int]:
    """Count each outcome, and the total as `checks`."""
    outcomes = [finding.outcome for finding in findings]
    counts = {outcome.value: outcomes.count(outcome) for outcome in Outcome}
    return {"checks": len(outcomes), **counts}


def group_of(identifier: str) -> str:
    """Return the leading letters of an id."""
    match = re.match(r"[A-Za-z]*", identifier)
    return match.group() if match else ""


def printable(text: str) -> str:
    """Escape control characters, bidi marks and lone surrogates."""
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def as_table(findings: Sequence[Finding], colour: bool, unicode: bool, groups: Mapping[str, str] | None = None) -> str:
    """Format findings as a table. `groups` maps the leading letters of ids to headings; the last line is a summary."""
    lines: list[str] = []
    for letters, members in groupby(findings, key=lambda finding: group_of(finding.id)):
        heading = (groups or {}).get(letters)
        if heading:
            lines += [*([""] if lines else []), _styled(heading, "1", colour)]
        # Checks skipped for the same reason share a line.
        for _, alike in groupby(members, key=_merge_key):
            lines += _lines(list(alike), colour, unicode)
    lines += ["", _last_line(findings, colour, unicode)]
    text = "\n".join(lines).lstrip("\n") + "\n"
    return text if unicode else text.encode("ascii", "backslashreplace").decode()


def as_json(findings: Sequence[Finding], kind: str, details: Mapping[str, Any] | None = None) -> str:
    """Format findings as JSON. `details` are further top-level keys, such as the input's path."""
    value = {
        "apiVersion": API_VERSION,
        "kind": kind,
        **(details or {}),
        "summary": summary(findings),
        "findings": [_as_value(finding) for finding in findings],
    }
    return json.dumps(value, indent=2) + "\n"


def as_junit(findings: Sequence[Finding], suite: str) -> str:
    """Format findings as JUnit test cases. JUnit has no warnings: those pass, with a note."""
    counts = summary(findings)
    numbers = {"tests": counts["checks"], "failures": counts["failed"], "errors": 0, "skipped": counts["skipped"]}
    attributes = {"name": printable(suite), **{name: str(number) for name, number in numbers.items()}}
    root = ElementTree.Element("testsuites", attributes)
    parent = ElementTree.SubElement(root, "testsuite", attributes)
    for finding in findings:
        _add_case(parent, finding, suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _merge_key(finding: Finding) -> tuple[str, str]:
    is_skipped = finding.outcome is Outcome.SKIPPED
    return ("", finding.evidence) if is_skipped else (finding.id, "")


def _lines(findings: Sequence[Finding], colour: bool, unicode: bool) -> list[str]:
    first = findings[0]
    sign = _styled((_SIGNS if unicode else _WORDS)[first.outcome], _COLOURS[first.outcome], colour)
    head = f"{sign} {_cut(first.id)} {_cut(first.title)}"
    if len(findings) > 1:
        return [f"{sign} {_cut(_ranges([finding.id for finding in findings]))} skipped: {_cut(first.evidence)}"]
    if first.outcome is Outcome.SKIPPED:
        return [f"{head} (skipped: {_cut(first.evidence)})"]
    if first.outcome not in _DETAILED:
        return [head]
    details = [*first.evidence.splitlines(), f"why: {first.why}", f"fix: {first.fix}"]
    return [head, *(f"{_INDENT}{_cut(line)}" for line in details)]


def _ranges(identifiers: Sequence[str]) -> str:
    """Format ids in order: "A03 to A18, A20"."""
    runs: list[list[str]] = []
    for identifier in identifiers:
        if runs and _number(identifier) == _number(runs[-1][-1]) + 1:
            runs[-1].append(identifier)
        else:
            runs.append([identifier])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _number(identifier: str) -> int:
    digits = re.search(r"\d{1,9}$", identifier)
    return int(digits.group()) if digits else 0


def _last_line(findings: Sequence[Finding], colour: bool, unicode: bool) -> str:
    counts = summary(findings)
    worst = next((outcome for outcome in _DETAILED if counts[outcome.value]), Outcome.PASSED)
    if counts["checks"] == counts["skipped"]:
        worst = Outcome.SKIPPED
    sign = (_SIGNS if unicode else _WORDS)[worst].strip()
    text = ", ".join(f"{counts[outcome.value]} {outcome.value}" for outcome in Outcome)
    return f"Result {_styled(sign, _COLOURS[worst], colour)} {counts['checks']} checks: {text}"


def _as_value(finding: Finding) -> dict[str, str]:
    return {
        "id": finding.id,
        "title": finding.title,
        "outcome": finding.outcome.value,
        "evidence": finding.evidence,
        "why": finding.why,
        "fix": finding.fix,
    }


def _add_case(parent: ElementTree.Element, finding: Finding, suite: str) -> None:
    names = {"classname": f"{suite}.{group_of(finding.id) or finding.id}", "name": f"{finding.id} {finding.title}"}
    case = ElementTree.SubElement(parent, "testcase", {name: printable(text) for name, text in names.items()})
    message = printable(finding.evidence)
    text = "\n".join((message, f"why: {printable(finding.why)}", f"fix: {printable(finding.fix)}"))
    if finding.outcome is Outcome.FAILED:
        ElementTree.SubElement(case, "failure", {"message": message, "type": printable(finding.id)}).text = text
    elif finding.outcome is Outcome.SKIPPED:
        ElementTree.SubElement(case, "skipped", {"message": message})
    elif finding.outcome is Outcome.WARNED:
        ElementTree.SubElement(case, "system-out").text = f"warning: {text}"


def _cut(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= MAX_LINE else f"{shown[: MAX_LINE - 3]}..."


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _styled(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text
