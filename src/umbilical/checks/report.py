"""What checks found, told three ways: a table for people, JSON for programs, JUnit for build servers.

Evidence comes out of files that others wrote: whatever could move a terminal's cursor, turn text around or break XML
is shown as an escape sequence.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final
from xml.etree import ElementTree

from umbilical.checks.check import Finding, Outcome

API_VERSION: Final = "umbilical.dev/v1alpha1"
# A line that wraps over half a screen hides the next finding; JSON and JUnit carry the whole of it.
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
_TOLD_AT_LENGTH: Final = (Outcome.FAILED, Outcome.WARNED)


def summary(findings: Iterable[Finding]) -> dict[str, int]:
    """Count the outcomes; all four are there, and their sum as `checks`."""
    outcomes = [finding.outcome for finding in findings]
    counts = {outcome.value: outcomes.count(outcome) for outcome in Outcome}
    return {"checks": len(outcomes), **counts}


def group_of(identifier: str) -> str:
    """Return the letters that an id begins with."""
    match = re.match(r"[A-Za-z]*", identifier)
    return match.group() if match else ""


def printable(text: str) -> str:
    """Escape what is no visible character or plain space: control characters, bidi marks, lone surrogates."""
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def as_table(findings: Sequence[Finding], colour: bool, unicode: bool, groups: Mapping[str, str] | None = None) -> str:
    """Tell findings to people. `groups` has headings by the letters of the ids; the last line counts."""
    lines: list[str] = []
    for letters, members in groupby(findings, key=lambda finding: group_of(finding.id)):
        heading = (groups or {}).get(letters)
        if heading:
            lines += [*([""] if lines else []), _styled(heading, "1", colour)]
        # What is skipped for one reason is one line: a screen full of them hides what is not.
        for _, alike in groupby(members, key=_told_together):
            lines += _lines(list(alike), colour, unicode)
    lines += ["", _last_line(findings, colour, unicode)]
    text = "\n".join(lines).lstrip("\n") + "\n"
    return text if unicode else text.encode("ascii", "backslashreplace").decode()


def as_json(findings: Sequence[Finding], kind: str, details: Mapping[str, Any] | None = None) -> str:
    """Tell findings to programs. `details` are further top-level keys, such as what was judged."""
    value = {
        "apiVersion": API_VERSION,
        "kind": kind,
        **(details or {}),
        "summary": summary(findings),
        "findings": [_as_value(finding) for finding in findings],
    }
    return json.dumps(value, indent=2) + "\n"


def as_junit(findings: Sequence[Finding], suite: str) -> str:
    """Tell findings to build servers: one test case each. JUnit knows no warnings: those pass, with a note."""
    counts = summary(findings)
    numbers = {"tests": counts["checks"], "failures": counts["failed"], "errors": 0, "skipped": counts["skipped"]}
    attributes = {"name": printable(suite), **{name: str(number) for name, number in numbers.items()}}
    root = ElementTree.Element("testsuites", attributes)
    parent = ElementTree.SubElement(root, "testsuite", attributes)
    for finding in findings:
        _add_case(parent, finding, suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _told_together(finding: Finding) -> tuple[str, str]:
    is_skipped = finding.outcome is Outcome.SKIPPED
    return ("", finding.evidence) if is_skipped else (finding.id, "")


def _lines(findings: Sequence[Finding], colour: bool, unicode: bool) -> list[str]:
    first, last = findings[0], findings[-1]
    sign = _styled((_SIGNS if unicode else _WORDS)[first.outcome], _COLOURS[first.outcome], colour)
    head = f"{sign} {_cut(first.id)} {_cut(first.title)}"
    if len(findings) > 1:
        return [f"{sign} {_cut(first.id)} to {_cut(last.id)} skipped: {_cut(first.evidence)}"]
    if first.outcome is Outcome.SKIPPED:
        return [f"{head} (skipped: {_cut(first.evidence)})"]
    if first.outcome not in _TOLD_AT_LENGTH:
        return [head]
    told = [*first.evidence.splitlines(), f"why: {first.why}", f"fix: {first.fix}"]
    return [head, *(f"{_INDENT}{_cut(line)}" for line in told)]


def _last_line(findings: Sequence[Finding], colour: bool, unicode: bool) -> str:
    counts = summary(findings)
    worst = next((outcome for outcome in _TOLD_AT_LENGTH if counts[outcome.value]), Outcome.PASSED)
    if not counts["checks"]:
        worst = Outcome.SKIPPED
    sign = (_SIGNS if unicode else _WORDS)[worst].strip()
    told = ", ".join(f"{counts[outcome.value]} {outcome.value}" for outcome in Outcome)
    return f"Result {_styled(sign, _COLOURS[worst], colour)} {counts['checks']} checks: {told}"


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
    told = "\n".join((message, f"why: {printable(finding.why)}", f"fix: {printable(finding.fix)}"))
    if finding.outcome is Outcome.FAILED:
        ElementTree.SubElement(case, "failure", {"message": message, "type": printable(finding.id)}).text = told
    elif finding.outcome is Outcome.SKIPPED:
        ElementTree.SubElement(case, "skipped", {"message": message})
    elif finding.outcome is Outcome.WARNED:
        ElementTree.SubElement(case, "system-out").text = f"warning: {told}"


def _cut(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= MAX_LINE else f"{shown[: MAX_LINE - 3]}..."


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _styled(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text
