"""All rules together: each of the specification once, clean on whole trees, and every one of them fires."""

import importlib
from pathlib import Path
from typing import Final

import hypothesis
import pytest
from hypothesis import strategies
from tests.support.hardway_drawing import clusters
from tests.support.hardway_everything import everything, inputs, rendered, usual
from tests.support.hardway_lint import Sample, Subject, changed, complaint

from umbilical.assets.hardway.cluster import Cluster, Profile
from umbilical.assets.hardway.lint.catalogue import GROUPS, ORDER, RULES, judge
from umbilical.assets.hardway.lint.rule import Severity
from umbilical.checks.check import Outcome
from umbilical.checks.report import group_of

LAST: Final = (
    "CFG-07 PKI-12 KC-02 BK-03 CRIO-02 SE-01 CVO-05 CRD-03 FG-02 KP-04 AU-01 INF-02"
    " NET-02 CC-01 EE-01 ETC-02 DNS-01 ING-01 MAN-02 HO-01 MCO-02 IGN-07 HA-05 LV-06 KN-06"
)
"""The last rule of each group of the specification: ids are numbered from one."""
WARNINGS: Final = {"CRIO-02", "CRD-03", "IGN-06", "HA-05", "LV-06", "KN-06"}
MODULES: Final = sorted(path.stem for path in Path(__file__).parent.glob("test_*_rules.py"))


def _samples(module: str) -> dict[str, Sample]:
    samples = importlib.import_module(f"tests.assets.hardway.lint.{module}").SAMPLES
    assert isinstance(samples, dict)
    return samples


def _told(tree: Subject) -> dict[str, str]:
    return {one.id: one.evidence for one in judge(tree.facts()) if one.outcome in (Outcome.FAILED, Outcome.WARNED)}


def test_every_rule_is_there_once_and_in_order() -> None:
    counts = {group: int(count) for group, _, count in (one.partition("-") for one in LAST.split())}
    wanted = [f"{group}-{number:02}" for group in ORDER for number in range(1, counts[group] + 1)]
    assert [rule.id for rule in RULES] == wanted


def test_rules_are_as_severe_as_they_should_be() -> None:
    assert {rule.id for rule in RULES if rule.severity is Severity.WARNING} == WARNINGS


def test_every_rule_says_why_and_what_to_do() -> None:
    for rule in RULES:
        assert rule.profiles
        assert all((rule.check.title, rule.check.why, rule.check.fix)), rule.id
        assert rule.check.id == rule.id


def test_headings_belong_to_groups() -> None:
    assert set(GROUPS) <= set(ORDER)
    assert group_of(RULES[0].id) in GROUPS


@pytest.mark.parametrize("profile", list(Profile))
def test_whole_clusters_are_clean(profile: Profile) -> None:
    for masters, workers in ((3, 2), (1, 0)):
        for tree in (usual(profile, masters, workers), everything(profile, masters, workers)):
            assert _told(tree) == {}


def test_where_everything_is_switched_on_no_rule_is_idle() -> None:
    for profile in Profile:
        findings = judge(everything(profile).facts())
        idle = {one.id for one in findings if one.outcome is Outcome.SKIPPED}
        assert idle == {rule.id for rule in RULES if profile not in rule.profiles}


def test_nodes_on_the_built_in_base_are_clean_too() -> None:
    assert _told(rendered(inputs(usual(Profile.OPENSHIFT).cluster, is_based=False))) == {}


# Each renders and judges a whole cluster, with keys of its own.
@hypothesis.settings(max_examples=8)
@hypothesis.given(strategies.sampled_from(Profile).flatmap(clusters))
def test_any_cluster_that_makes_sense_renders_clean(cluster: Cluster) -> None:
    assert _told(rendered(inputs(cluster, is_based=False))) == {}


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
