"""How rules judge: by profile, by need, by severity; what cannot be read is a fault and never a crash."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from tests.support.hardway_everything import usual

from umbilical.assets.hardway.cluster import Profile, Switch
from umbilical.assets.hardway.lint.facts import Facts, Unreadable
from umbilical.assets.hardway.lint.rule import (
    BOTH,
    KUBERNETES,
    MAX_FAULTS,
    OPENSHIFT,
    Doubt,
    Search,
    Severity,
    kube_proxy,
    rule,
    tunnel,
)
from umbilical.checks.check import Outcome, Verdict


@pytest.fixture(scope="module")
def facts() -> Facts:
    return usual(Profile.KUBERNETES, 1, 1).facts()


def verdict(facts: Facts, faults: Iterable[str], severity: Severity = Severity.ERROR) -> Verdict:
    return rule("X-01", severity, BOTH, "title", "why", "fix", lambda _: faults).check.judge(facts)


def test_no_fault_passes_and_a_fault_fails_or_warns(facts: Facts) -> None:
    assert verdict(facts, []).outcome is Outcome.PASSED
    assert verdict(facts, ["a", "b"]) == Verdict(Outcome.FAILED, "a; b")
    assert verdict(facts, ["a"], Severity.WARNING) == Verdict(Outcome.WARNED, "a")


def test_a_doubt_alone_warns_and_beside_a_fault_is_left_out(facts: Facts) -> None:
    assert verdict(facts, [Doubt("perhaps")]) == Verdict(Outcome.WARNED, "perhaps")
    assert verdict(facts, [Doubt("perhaps"), "surely"]) == Verdict(Outcome.FAILED, "surely")


def test_a_rule_is_for_its_profiles_alone(facts: Facts) -> None:
    def search(_: Facts) -> list[str]:
        return ["a fault"]

    made = rule("X-01", Severity.ERROR, OPENSHIFT, "title", "why", "fix", search)
    assert made.check.judge(facts) == Verdict(Outcome.SKIPPED, "it is not for the profile kubernetes")
    assert rule("X-02", Severity.ERROR, KUBERNETES, "t", "w", "f", search).check.judge(facts).outcome is Outcome.FAILED
    assert (made.id, made.check.id, made.profiles) == ("X-01", "X-01", OPENSHIFT)


def test_what_cannot_be_read_is_a_fault(facts: Facts) -> None:
    def search(_: Facts) -> Iterator[str]:
        yield "never seen"
        raise Unreadable("tls/x.crt is missing")

    def judge(search: Search) -> Verdict:
        return rule("X-01", Severity.ERROR, BOTH, "title", "why", "fix", search).check.judge(facts)

    assert judge(search) == Verdict(Outcome.FAILED, "tls/x.crt is missing")


def test_endless_faults_end(facts: Facts) -> None:
    found = verdict(facts, (f"fault {number}" for number in range(10**9)))
    assert len(found.evidence.split("; ")) == MAX_FAULTS


def test_a_need_that_is_not_met_skips_with_its_reason() -> None:
    subject = usual(Profile.KUBERNETES, 1, 1)
    with_all = subject.facts()
    assert (tunnel(with_all), kube_proxy(with_all)) == (None, None)
    without = Facts(replace(subject.cluster, kube_proxy=Switch.OFF), subject.assets, subject.now, False)
    made = rule("X-01", Severity.ERROR, BOTH, "title", "why", "fix", lambda _: ["a fault"], kube_proxy, tunnel)
    assert made.check.judge(without) == Verdict(Outcome.SKIPPED, "there is no kube-proxy (kubeProxy: off)")
    only = rule("X-02", Severity.ERROR, BOTH, "title", "why", "fix", lambda _: ["a fault"], tunnel)
    assert only.check.judge(without) == Verdict(Outcome.SKIPPED, "there is no tunnel (konnectivity: off)")
