"""The server's HTTP/2, judged by h2spec at both doors; docs/h2spec.md lists the exceptions."""

import re
from pathlib import Path

import pytest
from tests.support.h2spec import DOORS, Case, Report, doors, judge

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "h2spec.md"
CASES = 146
MOST_EXCEPTIONS = 9
ROW = re.compile(r"\| (both|frontend|agents) \| (\S+): (.+?) \| (fails|skipped|varies) \| (.+) \|")

Outcomes = dict[Case, str]


def listed_exceptions() -> dict[str, Outcomes]:
    """The table of the document, by door."""
    lines = DOCUMENT.read_text().splitlines()
    rows = [match.groups() for line in lines if (match := ROW.fullmatch(line))]
    assert 0 < len(rows) <= MOST_EXCEPTIONS, f"{len(rows)} exceptions, at most {MOST_EXCEPTIONS} are allowed"
    return {
        door: {Case(section, text): result for place, section, text, result, _ in rows if place in ("both", door)}
        for door in DOORS
    }


def found_exceptions(report: Report) -> Outcomes:
    assert report.total == CASES
    return dict.fromkeys(report.failed, "fails") | dict.fromkeys(report.skipped, "skipped")


@pytest.mark.real("h2spec")
def test_h2spec_finds_exactly_the_exceptions_that_the_document_lists(tmp_path: Path) -> None:
    listed = listed_exceptions()
    with doors("ours", tmp_path) as ports:
        reports = judge(ports, tmp_path)
    complaints = [
        f"{door}: {case}: listed as {listed[door].get(case, 'passed')!r}, is {outcome.get(case, 'passed')!r}: "
        f"{reports[door].failed.get(case, '')}"
        for door, outcome in ((door, found_exceptions(report)) for door, report in reports.items())
        for case in sorted(outcome.keys() | listed[door].keys())
        if outcome.get(case) != listed[door].get(case) != "varies"
    ]
    assert not complaints, "\n".join(complaints)
