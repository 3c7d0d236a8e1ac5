"""The three forms of a report, and that hostile evidence stays text in each of them."""

import json
from typing import Final
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from umbilical.checks.check import Finding, Outcome
from umbilical.checks.report import MAX_LINE, as_json, as_junit, as_table, group_of, printable

HOSTILE: Final = "\x1b[2J\x1b[31mred\x07 \u202eright to left\u202c </failure> & \ud800 \x00 \ufffe"


def _finding(identifier: str, outcome: Outcome, evidence: str = "saw it") -> Finding:
    return Finding(identifier, f"claim {identifier}", f"cause {identifier}", f"cure {identifier}", outcome, evidence)


ALL: Final = [
    _finding("S1", Outcome.PASSED),
    _finding("S2", Outcome.FAILED, "two of them"),
    _finding("C1", Outcome.WARNED, "nearly"),
    _finding("C2", Outcome.SKIPPED, "not here"),
]


def test_the_table_begins_each_line_with_a_sign_and_tells_failures_at_length() -> None:
    lines = as_table(ALL, colour=False, unicode=True, groups={"S": "Structure", "C": "Content"}).splitlines()
    assert lines == [
        "Structure",
        "√ S1 claim S1",
        "× S2 claim S2",
        "    two of them",
        "    why: cause S2",
        "    fix: cure S2",
        "",
        "Content",
        "‼ C1 claim C1",
        "    nearly",
        "    why: cause C1",
        "    fix: cure C1",
        "- C2 claim C2 (skipped: not here)",
        "",
        "Result × 4 checks: 1 passed, 1 failed, 1 warned, 1 skipped",
    ]


def test_a_terminal_without_unicode_gets_words() -> None:
    text = as_table([*ALL, _finding("X1", Outcome.FAILED, "naïve")], colour=False, unicode=False)
    assert text.isascii()
    starts = [line[:6] for line in text.splitlines() if line.startswith("[")]
    assert starts == ["[ok]  ", "[FAIL]", "[warn]", "[skip]", "[FAIL]"]
    assert "na\\xefve" in text
    assert text.splitlines()[-1].startswith("Result [FAIL] 5 checks")


def test_neighbours_that_are_skipped_for_one_reason_share_a_line() -> None:
    skipped = [_finding(name, Outcome.SKIPPED, "no tunnel") for name in ("F1", "F2", "F3")]
    lines = as_table([*skipped, _finding("F4", Outcome.SKIPPED, "other")], colour=False, unicode=True).splitlines()
    # Without headings the groups follow each other from the first line on.
    assert lines[:2] == ["- F1 to F3 skipped: no tunnel", "- F4 claim F4 (skipped: other)"]
    assert lines[-1].startswith("Result - 4 checks")
    apart = [_finding(name, Outcome.SKIPPED, "no tunnel") for name in ("A08", "A09", "A10", "A12", "PKI-01", "PKI-02")]
    lines = as_table(apart, colour=False, unicode=True).splitlines()
    assert lines[:2] == ["- A08 to A10, A12 skipped: no tunnel", "- PKI-01 to PKI-02 skipped: no tunnel"]


def test_colour_is_only_there_when_asked_for_and_the_last_line_shows_the_worst() -> None:
    assert "\x1b[31m×\x1b[0m S2" in as_table(ALL, colour=True, unicode=True)
    assert "\x1b" not in as_table(ALL, colour=False, unicode=True)
    ends = [as_table([one], colour=False, unicode=True).splitlines()[-1] for one in ALL]
    assert [line.split()[1] for line in ends] == ["√", "×", "‼", "-"]
    assert as_table([], colour=False, unicode=True).splitlines()[-1].startswith("Result - 0 checks")


def test_a_long_line_is_cut_in_the_table_and_whole_in_json() -> None:
    long = [_finding("S1", Outcome.FAILED, "x" * 5000)]
    assert max(len(line) for line in as_table(long, colour=False, unicode=True).splitlines()) <= MAX_LINE + 4
    assert json.loads(as_json(long, "Report"))["findings"][0]["evidence"] == "x" * 5000


def test_json_has_a_version_a_kind_counts_and_every_finding() -> None:
    value = json.loads(as_json(ALL, "BootstrapReport", {"profile": "patched"}))
    assert (value["apiVersion"], value["kind"]) == ("umbilical.dev/v1alpha1", "BootstrapReport")
    assert value["profile"] == "patched"
    assert value["summary"] == {"checks": 4, "passed": 1, "failed": 1, "warned": 1, "skipped": 1}
    words = {"title": "claim S2", "evidence": "two of them", "why": "cause S2", "fix": "cure S2"}
    assert value["findings"][1] == {"id": "S2", "outcome": "failed", **words}


def test_junit_has_one_case_per_check_and_says_what_failed_and_what_was_skipped() -> None:
    root = ElementTree.fromstring(as_junit(ALL, "bootstrap.verify"))
    suite = root.find("testsuite")
    assert suite is not None
    assert [suite.get(name) for name in ("tests", "failures", "skipped", "errors")] == ["4", "1", "1", "0"]
    cases = {str(case.get("name")).split()[0]: case for case in suite.iter("testcase")}
    assert set(cases) == {"S1", "S2", "C1", "C2"}
    assert [child.tag for child in cases["S1"]] == []
    failure = cases["S2"].find("failure")
    assert failure is not None
    assert failure.get("message") == "two of them"
    assert "fix: cure S2" in str(failure.text)
    assert [cases[name][0].tag for name in ("C1", "C2")] == ["system-out", "skipped"]
    assert cases["C1"].get("classname") == "bootstrap.verify.C"


def test_hostile_evidence_neither_moves_the_cursor_nor_breaks_xml() -> None:
    findings = [_finding("S1", outcome, HOSTILE) for outcome in Outcome]
    table = as_table(findings, colour=False, unicode=True)
    assert "\x1b" not in table
    assert "\u202e" not in table
    assert "\\x1b[2J" in table
    root = ElementTree.fromstring(as_junit(findings, HOSTILE))
    assert len(list(root.iter("failure"))) == 1
    assert json.loads(as_json(findings, "Report"))["findings"][0]["evidence"] == HOSTILE


def test_a_line_of_evidence_cannot_pass_for_a_result() -> None:
    table = as_table([_finding("S1", Outcome.FAILED, "a\n√ S9 fine\r× b")], colour=False, unicode=True)
    assert [line for line in table.splitlines() if line.startswith(("√", "×"))] == ["× S1 claim S1"]


@given(st.text(), st.sampled_from(Outcome))
def test_any_text_gives_a_report_in_every_form(text: str, outcome: Outcome) -> None:
    findings = [Finding(text, text, text, text, outcome, text)]
    assert ElementTree.fromstring(as_junit(findings, text)).tag == "testsuites"
    assert json.loads(as_json(findings, text))["kind"] == text
    assert as_table(findings, colour=False, unicode=False).isascii()
    lines = as_table(findings, colour=False, unicode=True, groups={group_of(text): "G"}).split("\n")
    assert all(line.isprintable() for line in lines)


def test_printable_text_stays_as_it_is() -> None:
    assert printable("plain, ünïcödé √") == "plain, ünïcödé √"
    assert printable("tab\there") == "tab\\there"
