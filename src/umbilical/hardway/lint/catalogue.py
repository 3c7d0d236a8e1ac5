"""All lint rules, in the order of the report."""

from collections.abc import Iterable
from typing import Final

from umbilical.checks import check
from umbilical.checks.check import Finding
from umbilical.checks.report import group_of
from umbilical.hardway.lint import (
    config_rules,
    handoff_rules,
    ignition_rules,
    infrastructure_rules,
    kubeconfig_rules,
    machine_config_rules,
    manifest_rules,
    node_rules,
    object_rules,
    pki_rules,
    pod_rules,
)
from umbilical.hardway.lint.facts import LintFacts, LintRule

ORDER: Final = (
    *("CFG", "PKI", "KC", "BK", "CRIO", "SE", "CVO", "CRD", "FG", "KP", "AU", "INF", "NET", "CC", "EE", "ETC", "DNS"),
    *("ING", "MAN", "HO", "MCO", "IGN", "HA", "LV", "KN"),
)
GROUPS: Final = {
    "CFG": "cluster.yaml",
    "PKI": "Certificates",
    "KC": "Kubeconfigs",
    "BK": "The bootstrap node",
    "CVO": "Version operator, CRDs and FeatureGate",
    "KP": "Services before the network operator runs",
    "INF": "Objects that operators read",
    "MAN": "All objects",
    "MCO": "Machine config",
    "IGN": "Ignition",
    "HA": "Load balancer",
    "LV": "Virtual machines and DNS",
    "KN": "The tunnel",
}
"""Headings of the report; a group without one is listed under the previous heading."""

_MODULES: Final = (
    config_rules.RULES,
    handoff_rules.RULES,
    ignition_rules.RULES,
    infrastructure_rules.RULES,
    kubeconfig_rules.RULES,
    machine_config_rules.RULES,
    manifest_rules.RULES,
    node_rules.RULES,
    object_rules.RULES,
    pki_rules.RULES,
    pod_rules.RULES,
)


def _place(rule: LintRule) -> tuple[int, str]:
    return ORDER.index(group_of(rule.id)), rule.id


RULES: Final[tuple[LintRule, ...]] = tuple(sorted((rule for rules in _MODULES for rule in rules), key=_place))


def judge(facts: LintFacts, rules: Iterable[LintRule] = RULES) -> list[Finding]:
    return check.run_checks((rule.check for rule in rules), facts)
