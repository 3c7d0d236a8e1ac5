"""Sights: one look serves the wait, the check and the status, and no failure of the API ends a wait."""

from pathlib import Path

import pytest
from tests.support.made_up_stages import Lines, make_site

from umbilical.checks.check import Outcome
from umbilical.cluster.errors import ApiUnreachable
from umbilical.hardway.errors import StageTimeout
from umbilical.hardway.looking import Look, Sight, see
from umbilical.hardway.site import Site
from umbilical.hardway.waiting import NotYet, Signature


def sight(look: Look) -> Sight:
    return Sight("X-01", "bread is baked", "one eats it", "bake", look, (Signature("refused", "is the shop open?"),))


def answers(*given: str | Exception) -> Look:
    left = list(given)

    def look(site: Site) -> str:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return look


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def site(tmp_path: Path, lines: Lines) -> Site:
    return make_site(tmp_path, reporter=lines, sleep=lambda seconds: None)


def test_a_check_passes_with_what_was_seen_and_fails_with_what_was_not(site: Site) -> None:
    passed = sight(answers("a loaf")).check.judge(site)
    assert (passed.outcome, passed.evidence) == (Outcome.PASSED, "a loaf")
    failed = sight(answers(NotYet("only dough"))).check.judge(site)
    assert (failed.outcome, failed.evidence) == (Outcome.FAILED, "only dough")


def test_a_fault_is_seen_and_not_raised(site: Site, lines: Lines) -> None:
    refused = ApiUnreachable("GET /readyz", "Connection refused")
    assert sight(answers(refused)).check.judge(site).outcome is Outcome.FAILED
    assert sight(answers(refused, "a loaf")).wait(site, 60) == "a loaf"
    assert "Connection refused" in lines.waits[0].seen
    assert lines.waits[0].hints == ("is the shop open?",)


def test_what_was_waited_for_is_told(site: Site, lines: Lines) -> None:
    sight(answers(NotYet("dough"), "a loaf")).wait(site, 60)
    sight(answers("")).wait(site, 60)
    assert lines.lines == ["saw bread is baked: a loaf", "saw bread is baked"]


def test_sights_are_seen_one_after_the_other_and_the_first_that_is_not_ends_it(site: Site, lines: Lines) -> None:
    with pytest.raises(StageTimeout) as raised:
        see(site, 0, sight(answers("one")), sight(answers(NotYet("no flour"))), sight(answers("three")))
    assert "no flour" in raised.value.why
    assert raised.value.remedy == "bake"
    assert lines.lines == ["saw bread is baked: one"]
