"""All judges on what is rendered: they pass where their programs are, and say which is missing where not."""

from pathlib import Path

import pytest
from tests.support.hardway_judges import current, find

from umbilical.assets.hardway.cluster import Profile
from umbilical.checks.check import Outcome
from umbilical.checks.report import group_of
from umbilical.hardway.judges.catalogue import GROUP, JUDGES, ask_judges


@pytest.mark.real("openssl", "haproxy", "shellcheck", "ignition-validate", "etcd", "etcdctl", "kubectl")
@pytest.mark.parametrize("profile", list(Profile))
def test_all_judges_are_content_with_what_is_rendered(profile: Profile) -> None:
    findings = ask_judges(current(profile).facts(), find)
    assert {finding.id: finding.evidence for finding in findings if finding.outcome is not Outcome.PASSED} == {}
    assert len(findings) == len(JUDGES)


def test_a_judge_whose_program_is_missing_is_skipped_and_says_which() -> None:
    findings = ask_judges(current(Profile.KUBERNETES).facts(), lambda name: None)
    assert {finding.outcome for finding in findings} == {Outcome.SKIPPED}
    assert "there is no program etcd, etcdctl" in {finding.evidence for finding in findings}


def test_without_judges_no_copy_is_made() -> None:
    def refuse(name: str) -> Path | None:
        raise AssertionError(name)

    assert ask_judges(current(Profile.KUBERNETES).facts(), refuse, ()) == []


def test_judges_have_ids_of_their_own() -> None:
    assert len({judge.id for judge in JUDGES}) == len(JUDGES)
    assert {group_of(judge.id) for judge in JUDGES} == {GROUP}
