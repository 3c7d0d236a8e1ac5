"""What stages came to, told three ways."""

import json
from dataclasses import replace
from pathlib import Path

from tests.support.made_up_stages import MadeUpStage, World

from umbilical.checks.check import Finding, Outcome
from umbilical.cli import stage_report
from umbilical.hardway.errors import StageTimeout
from umbilical.hardway.pipeline import Ending, Result
from umbilical.hardway.state import StageRecord, State, Status

STAGE = MadeUpStage(5, World(), needs=(4,))
FAILED = Finding("PKI-01", "claim", "why", "fix", Outcome.FAILED, "saw")


def test_a_fault_that_is_no_check_is_a_finding_too() -> None:
    fault = StageTimeout("UMB725", "waited in vain", "saw nothing", "wait")
    (found,) = stage_report.result_findings(Result(STAGE, Ending.FAILED, 1.0, (), fault))
    assert (found.id, found.outcome, found.evidence, found.fix) == (
        "UMB725",
        Outcome.FAILED,
        "waited in vain: saw nothing",
        "wait",
    )


def test_a_failed_check_is_not_told_twice() -> None:
    fault = StageTimeout("UMB723", "what", "why", "next")
    assert stage_report.result_findings(Result(STAGE, Ending.FAILED, 1.0, (FAILED,), fault)) == [FAILED]


def test_every_check_that_failed_or_warned_is_told_and_no_other() -> None:
    warned = replace(FAILED, id="REL-02", outcome=Outcome.WARNED, evidence="saw\x1b less")
    passed = replace(FAILED, id="ART-05", outcome=Outcome.PASSED)
    results = [Result(STAGE, Ending.DONE, 1.0, (passed, warned)), Result(STAGE, Ending.FAILED, 1.0, (FAILED, FAILED))]
    assert stage_report.run_table(results).splitlines() == [
        "05 warned REL-02 claim: saw\\x1b less",
        "05 failed PKI-01 claim: saw",
        "05 failed PKI-01 claim: saw",
        "2 stages: 1 done, 1 failed",
    ]


def test_stale_stages_say_why() -> None:
    state = State(stages={5: StageRecord(Status.STALE, because="changed since: pki", seconds=61.0)})
    table = stage_report.list_table([STAGE], state, is_locked=False)
    assert "stale" in table
    assert "1 min 01 s" in table
    assert "changed since: pki" in table
    assert json.loads(stage_report.list_json([STAGE], state, is_locked=False))["stages"][0]["needs"] == [4]


def test_a_report_replaces_an_older_one(tmp_path: Path) -> None:
    for text in ("one", "two"):
        stage_report.write_junit(tmp_path / "report.xml", text)
    assert (tmp_path / "report.xml").read_text() == "two"
