"""All rules together: each of the specification once, clean on whole trees, and every one of them fires."""

import importlib
from pathlib import Path
from typing import Final

import pytest
from tests.support.hardway_everything import everything, inputs, rendered, usual
from tests.support.hardway_lint import Sample, changed, complaint

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.catalogue import GROUPS, ORDER, RULES, judge
from umbilical.assets.hardway.lint.rule import Severity
from umbilical.checks.check import Finding, Outcome
from umbilical.checks.report import group_of

COUNTS: Final = {
    "CFG": 7,
    "PKI": 12,
    "KC": 2,
    "BK": 3,
    "CRIO": 2,
    "SE": 1,
    "CVO": 5,
    "CRD": 3,
    "FG": 2,
    "KP": 4,
    "AU": 1,
    "INF": 2,
    "NET": 2,
    "CC": 1,
    "EE": 1,
    "ETC": 2,
    "DNS": 1,
    "ING": 1,
    "MAN": 2,
    "HO": 1,
    "MCO": 2,
    "IGN": 7,
    "HA": 5,
    "LV": 6,
    "KN": 6,
}
"""Of the specification: ids are numbered from one."""
WARNINGS: Final = {"CRIO-02", "CRD-03", "IGN-06", "HA-05", "LV-06", "KN-06"}
BY_ID: Final = {rule.id: rule for rule in RULES}
MODULES: Final = sorted(path.stem for path in Path(__file__).parent.glob("test_*_rules.py"))
SHAPES: Final = [(3, 2), (1, 0)]


def _samples(module: str) -> dict[str, Sample]:
    samples = importlib.import_module(f"tests.assets.hardway.lint.{module}").SAMPLES
    assert isinstance(samples, dict)
    return samples


def _told(findings: list[Finding]) -> dict[str, str]:
    return {one.id: one.evidence for one in findings if one.outcome in (Outcome.FAILED, Outcome.WARNED)}


def test_every_rule_is_there_once_and_in_order() -> None:
    wanted = [f"{group}-{number:02}" for group in ORDER for number in range(1, COUNTS[group] + 1)]
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
@pytest.mark.parametrize(("masters", "workers"), SHAPES)
def test_whole_clusters_are_clean(profile: Profile, masters: int, workers: int) -> None:
    for tree in (usual(profile, masters, workers), everything(profile, masters, workers)):
        assert _told(judge(tree.facts())) == {}


def test_where_everything_is_switched_on_no_rule_is_idle() -> None:
    for profile in Profile:
        findings = judge(everything(profile).facts())
        idle = {one.id for one in findings if one.outcome is Outcome.SKIPPED}
        assert idle == {rule.id for rule in RULES if profile not in rule.profiles}


def test_nodes_on_the_built_in_base_are_clean_too() -> None:
    tree = rendered(inputs(usual(Profile.OPENSHIFT).cluster, is_based=False))
    assert _told(judge(tree.facts())) == {}


def test_every_rule_has_a_failing_sample() -> None:
    assert {key.split()[0] for module in MODULES for key in _samples(module)} == set(BY_ID)


@pytest.mark.parametrize("module", MODULES)
def test_every_sample_makes_its_rule_fire_on_a_whole_tree(module: str) -> None:
    silent = [
        (key, profile.value)
        for key, sample in _samples(module).items()
        for profile in BY_ID[key.split()[0]].profiles
        if not complaint(BY_ID[key.split()[0]], changed(everything(profile), sample))
    ]
    assert silent == []
