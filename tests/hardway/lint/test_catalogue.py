"""Rules: how each judges, and all together: each of the specification once, clean on whole trees, every one fires."""

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import hypothesis
import pytest
from hypothesis import strategies
from tests.support.hardway_drawing import clusters
from tests.support.hardway_everything import everything, inputs, rendered, usual
from tests.support.hardway_lint import Sample, Subject, changed, complaint

from umbilical.checks.check import MAX_FAULTS, Doubt, Outcome, Verdict
from umbilical.checks.report import group_of
from umbilical.hardway.config.cluster import Cluster, ClusterProfile, Switch
from umbilical.hardway.lint.catalogue import GROUPS, ORDER, RULES, judge
from umbilical.hardway.lint.facts import (
    KUBERNETES,
    OPENSHIFT,
    LintFacts,
    RuleSeverity,
    Unreadable,
    kube_proxy,
    rule,
    tunnel,
)

LAST: Final = (
    "CFG-07 PKI-12 KC-02 BK-03 CRIO-02 SE-01 CVO-05 CRD-03 FG-02 KP-04 AU-01 INF-02"
    " NET-02 CC-01 EE-01 ETC-02 DNS-01 ING-01 MAN-02 HO-01 MCO-03 IGN-07 HA-05 LV-06 KN-06"
)
"""The last rule of each group of the specification: ids are numbered from one."""
WARNINGS: Final = {"CRIO-02", "CRD-03", "IGN-06", "HA-05", "LV-06", "KN-06"}


BY_CONFIG: Final = {"KP-03", "MCO-03"}
"""What a cluster of OpenShift may be told: `kubeProxy: auto`, and the built-in base."""
MODULES: Final = sorted(path.stem for path in Path(__file__).parent.glob("test_*_rules.py"))


def _samples(module: str) -> dict[str, Sample]:
    samples = importlib.import_module(f"tests.hardway.lint.{module}").SAMPLES
    assert isinstance(samples, dict)
    return samples


def _told(tree: Subject) -> dict[str, str]:
    return {one.id: one.evidence for one in judge(tree.facts()) if one.outcome in (Outcome.FAILED, Outcome.WARNED)}


def test_every_rule_is_there_once_and_in_order() -> None:
    counts = {group: int(count) for group, _, count in (one.partition("-") for one in LAST.split())}
    wanted = [f"{group}-{number:02}" for group in ORDER for number in range(1, counts[group] + 1)]
    assert [rule.id for rule in RULES] == wanted


def test_rules_are_as_severe_as_they_should_be() -> None:
    assert {rule.id for rule in RULES if rule.severity is RuleSeverity.WARNING} == WARNINGS


def test_every_rule_says_why_and_what_to_do() -> None:
    for one in RULES:
        assert all((one.profiles, one.check.title, one.check.why, one.check.fix)), one.id
        assert one.check.id == one.id


def test_headings_belong_to_groups() -> None:
    assert set(GROUPS) <= set(ORDER)
    assert group_of(RULES[0].id) in GROUPS


@pytest.mark.parametrize("profile", list(ClusterProfile))
def test_whole_clusters_are_clean(profile: ClusterProfile) -> None:
    for masters, workers in ((3, 2), (1, 0)):
        for tree in (usual(profile, masters, workers), everything(profile, masters, workers)):
            told = _told(tree)
            assert list(told) == (["KP-03"] if tree.cluster.is_openshift and not tree.cluster.has_kube_proxy else [])


def test_where_everything_is_switched_on_no_rule_is_idle() -> None:
    for profile in ClusterProfile:
        findings = judge(everything(profile).facts())
        idle = {one.id for one in findings if one.outcome is Outcome.SKIPPED}
        assert idle == {rule.id for rule in RULES if profile not in rule.profiles}


def test_nodes_on_the_built_in_base_lack_only_what_the_machine_config_operator_adds() -> None:
    told = _told(rendered(inputs(everything(ClusterProfile.OPENSHIFT).cluster, is_based=False)))
    assert list(told) == ["MCO-03"]
    assert told["MCO-03"].startswith("ignition/master-0.ign lacks /usr/local/bin/configure-ovs.sh, ")


# Each renders and judges a whole cluster, with keys of its own.
@hypothesis.settings(max_examples=8)
@hypothesis.given(strategies.sampled_from(ClusterProfile).flatmap(clusters))
def test_any_cluster_that_makes_sense_renders_clean(cluster: Cluster) -> None:
    assert set(_told(rendered(inputs(cluster, is_based=False)))) - BY_CONFIG == set()


def test_every_rule_has_a_failing_sample() -> None:
    assert {key.split()[0] for module in MODULES for key in _samples(module)} == {rule.id for rule in RULES}


@pytest.mark.parametrize("module", MODULES)
def test_every_sample_makes_its_rule_fire_on_a_whole_tree(module: str) -> None:
    profiles = {rule.id: rule.profiles for rule in RULES}
    silent = [
        (key, profile.value)
        for key, sample in _samples(module).items()
        for profile in profiles[key.split()[0]]
        if not complaint(key, changed(everything(profile), sample))
    ]
    assert silent == []


@pytest.fixture(scope="module")
def facts() -> LintFacts:
    return usual(ClusterProfile.KUBERNETES, 1, 1).facts()


def verdict(facts: LintFacts, faults: Iterable[str], severity: RuleSeverity = RuleSeverity.ERROR) -> Verdict:
    return rule("X-01", "title", "why", "fix", lambda _: faults, severity=severity).check.judge(facts)


def test_no_fault_passes_and_a_fault_fails_or_warns(facts: LintFacts) -> None:
    assert verdict(facts, []).outcome is Outcome.PASSED
    assert verdict(facts, ["a", "b"]) == Verdict(Outcome.FAILED, "a; b")
    assert verdict(facts, ["a"], RuleSeverity.WARNING) == Verdict(Outcome.WARNED, "a")


def test_a_doubt_alone_warns_and_beside_a_fault_is_left_out(facts: LintFacts) -> None:
    assert verdict(facts, [Doubt("perhaps")]) == Verdict(Outcome.WARNED, "perhaps")
    assert verdict(facts, [Doubt("perhaps"), "surely"]) == Verdict(Outcome.FAILED, "surely")


def test_a_rule_is_for_its_profiles_alone(facts: LintFacts) -> None:
    def search(_: LintFacts) -> list[str]:
        return ["a fault"]

    made = rule("X-01", "title", "why", "fix", search, profiles=OPENSHIFT)
    assert made.check.judge(facts) == Verdict(Outcome.SKIPPED, "it does not apply to profile kubernetes")
    assert rule("X-02", "t", "w", "f", search, profiles=KUBERNETES).check.judge(facts).outcome is Outcome.FAILED
    assert (made.id, made.check.id, made.profiles) == ("X-01", "X-01", OPENSHIFT)


def test_what_cannot_be_read_is_a_fault(facts: LintFacts) -> None:
    def search(_: LintFacts) -> Iterator[str]:
        yield "never seen"
        raise Unreadable("tls/x.crt is missing")

    assert rule("X-01", "title", "why", "fix", search).check.judge(facts) == Verdict(
        Outcome.FAILED, "tls/x.crt is missing"
    )


def test_endless_faults_end(facts: LintFacts) -> None:
    found = verdict(facts, (f"fault {number}" for number in range(10**9)))
    assert len(found.evidence.split("; ")) == MAX_FAULTS


def test_a_need_that_is_not_met_skips_with_its_reason() -> None:
    subject = usual(ClusterProfile.KUBERNETES, 1, 1)
    with_all = subject.facts()
    assert (tunnel(with_all), kube_proxy(with_all)) == (None, None)
    without = LintFacts(replace(subject.cluster, kube_proxy=Switch.OFF), subject.assets, subject.now, False)
    made = rule("X-01", "title", "why", "fix", lambda _: ["a fault"], kube_proxy, tunnel)
    assert made.check.judge(without) == Verdict(Outcome.SKIPPED, "there is no kube-proxy (kubeProxy: off)")
    only = rule("X-02", "title", "why", "fix", lambda _: ["a fault"], tunnel)
    assert only.check.judge(without) == Verdict(Outcome.SKIPPED, "there is no tunnel (konnectivity: off)")
