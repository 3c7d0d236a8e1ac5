"""Lint rules as checks of stages."""

import subprocess
from pathlib import Path

from tests.support.hardway_sites import make_site

from umbilical.assets.hardway.lint.catalogue import RULES
from umbilical.assets.tree import Asset
from umbilical.checks.check import Outcome
from umbilical.checks.report import group_of
from umbilical.hardway.stages.lint_checks import lint_checks
from umbilical.hardway.stages.s01_prerequisites import STAGE


def test_groups_and_single_rules_are_chosen_for_the_profile(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    found = [check.id for check in lint_checks(site, ("KC",), ("BK-02",))]
    wanted = [
        rule.id
        for rule in RULES
        if site.cluster.profile in rule.profiles and (group_of(rule.id) == "KC" or rule.id == "BK-02")
    ]
    assert found == wanted
    assert "KC-01" in found
    assert "BK-02" in found


def test_they_judge_the_site_that_they_were_made_for(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    assert all(check.judge(site).outcome is not Outcome.FAILED for check in lint_checks(site, ("KC",)))
    name = "auth/admin.kubeconfig"
    site.assets = {**site.assets, name: Asset(name, b"{}", 0o600)}
    outcomes = {check.id: check.judge(site).outcome for check in lint_checks(site, ("KC",))}
    assert outcomes["KC-01"] is Outcome.FAILED


def test_the_first_stage_looks_whether_git_would_take_a_secret(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    (check,) = [one for one in STAGE.checks(site) if one.id == "CFG-07"]
    assert check.judge(site).outcome is Outcome.PASSED
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (check,) = [one for one in STAGE.checks(site) if one.id == "CFG-07"]
    verdict = check.judge(site)
    assert verdict.outcome is Outcome.FAILED
    assert ".key" in verdict.evidence or "kubeconfig" in verdict.evidence
    (tmp_path / ".gitignore").write_text("*\n")
    (check,) = [one for one in STAGE.checks(site) if one.id == "CFG-07"]
    assert check.judge(site).outcome is Outcome.PASSED


def test_every_rule_is_asked_by_a_stage(tmp_path: Path) -> None:
    from umbilical.hardway.stages import catalogue

    asked: set[str] = set()
    for profile in ("kubernetes", "openshift"):
        site = make_site(tmp_path / profile, profile)
        for stage in catalogue.stages()[:8]:
            asked |= {check.id for check in stage.checks(site)}
    assert {rule.id for rule in RULES} - asked == set()
