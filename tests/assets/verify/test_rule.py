"""A rule skips, passes, warns or fails by what its search finds."""

from collections.abc import Iterable

import pytest
from tests.support.bootstrap_corpus import bootstrap_config
from tests.support.verify_subjects import subject

from umbilical.assets.verify.facts import BootstrapFacts
from umbilical.assets.verify.rule import MAX_FAULTS, Doubt, bootkube, files, rule, tunnel
from umbilical.checks.check import Verdict, failed, passed, skipped, warned

PATCHED = BootstrapFacts(subject("patched").content)
PLAIN = BootstrapFacts(bootstrap_config("4.18"))


def verdict(faults: Iterable[str]) -> Verdict:
    return rule("A1", "", "", "", lambda facts: faults).judge(PATCHED)


def test_no_fault_passes() -> None:
    assert verdict([]) == passed()


def test_faults_fail_and_are_told_together() -> None:
    assert verdict(["one", "two"]) == failed("one; two")


def test_doubts_alone_warn_and_beside_a_fault_are_left_out() -> None:
    assert verdict([Doubt("hm")]) == warned("hm")
    assert verdict([Doubt("hm"), "bad"]) == failed("bad")


def test_a_thousand_faults_are_not_all_told() -> None:
    assert len(verdict(str(number) for number in range(1000)).evidence.split("; ")) == MAX_FAULTS


def test_a_need_that_is_not_met_skips_and_ends_the_search_for_others() -> None:
    def never(facts: BootstrapFacts) -> str | None:
        raise AssertionError

    judged = rule("A1", "", "", "", lambda facts: [], lambda facts: "no", never).judge(PATCHED)
    assert judged == skipped("no")


def test_nothing_is_asked_of_what_is_no_config() -> None:
    assert rule("A1", "", "", "", lambda facts: ["x"]).judge(BootstrapFacts(b"")).outcome.value == "skipped"


@pytest.mark.parametrize(("facts", "reason"), [(PATCHED, None), (PLAIN, "profile none")])
def test_a_tunnel_is_needed(facts: BootstrapFacts, reason: str | None) -> None:
    said = tunnel(facts)
    assert said is None if reason is None else reason in str(said)


def test_a_switched_off_tunnel_is_none() -> None:
    assert "native-off" in str(tunnel(BootstrapFacts(bootstrap_config("5.1", native="off"))))


def test_files_are_needed_by_role() -> None:
    assert files("egress", "library")(PATCHED) is None
    missing = BootstrapFacts(subject("patched").without("egress").content)
    assert "egress-selector-config.yaml" in str(files("library", "egress")(missing))


def test_bootkube_is_needed() -> None:
    assert bootkube(PATCHED) is None
    assert "S7" in str(bootkube(BootstrapFacts(subject("patched").without("bootkube").content)))
