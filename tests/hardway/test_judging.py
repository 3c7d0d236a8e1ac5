"""Asking checks: what keeps one from looking is what it found."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.made_up_stages import MadeUpStage, World, make_site

from umbilical.checks.check import Check, Outcome, Verdict, failed, passed, warned
from umbilical.hardway import judging
from umbilical.hardway.errors import HardwayError
from umbilical.hardway.site import Site


class Asked(MadeUpStage):
    judges: tuple[Callable[[Site], Verdict], ...] = ()

    def checks(self, site: Site) -> list[Check[Site]]:
        return [Check(f"C-{index}", f"claim {index}", "why", "fix", judge) for index, judge in enumerate(self.judges)]


def _stage(*judges: Callable[[Site], Verdict]) -> Asked:
    stage = Asked(4, World())
    stage.judges = judges
    return stage


def _raise(error: Exception) -> Callable[[Site], Verdict]:
    def judge(site: Site) -> Verdict:
        raise error

    return judge


def test_every_check_is_asked_whatever_the_others_say(tmp_path: Path) -> None:
    refused = HardwayError("UMB740", "the API does not answer", "connection refused", "wait")
    stage = _stage(_raise(refused), lambda site: passed(), _raise(OSError("no route")), _raise(TimeoutError()))
    found = judging.findings(stage, make_site(tmp_path))
    assert [one.outcome for one in found] == [Outcome.FAILED, Outcome.PASSED, Outcome.FAILED, Outcome.FAILED]
    assert found[0].evidence == "UMB740 the API does not answer: connection refused"
    assert "no route" in found[2].evidence
    assert "TimeoutError" in found[3].evidence


def test_a_fault_of_our_own_is_not_taken_for_a_finding(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        judging.findings(_stage(_raise(KeyError("x"))), make_site(tmp_path))


def test_a_stage_ends_when_nothing_failed_though_something_warned(tmp_path: Path) -> None:
    stage = _stage(lambda site: passed(), lambda site: warned("hm"))
    found = judging.findings(stage, make_site(tmp_path))
    judging.refuse_failed(stage, found)
    assert [one.outcome for one in found] == [Outcome.PASSED, Outcome.WARNED]


def test_the_first_failed_check_is_told_with_its_fix_and_how_many_more(tmp_path: Path) -> None:
    stage = _stage(lambda site: passed(), lambda site: failed("saw this"), lambda site: failed("and that"))
    with pytest.raises(judging.ChecksFailed) as told:
        judging.refuse_failed(stage, judging.findings(stage, make_site(tmp_path)))
    assert str(told.value).splitlines() == [
        "UMB723 stage 04 made-up-4: C-1 does not hold: claim 1 (and 1 more of its checks)",
        "  why: saw this",
        "  next: fix",
    ]
    assert len(told.value.findings) == 3
