"""Stages 05 to 08: what they were made from, what they write, and that the lint is content with it."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.hardway_sites import make_site

from umbilical.checks.check import Outcome, has_failed
from umbilical.hardway import judging
from umbilical.hardway.stage import Producing
from umbilical.hardway.stages import catalogue

WRITING = [stage for stage in catalogue.stages() if 5 <= stage.number <= 8]


@pytest.mark.parametrize("profile", ["kubernetes", "openshift"])
def test_after_their_steps_all_their_checks_pass(tmp_path: Path, profile: str) -> None:
    site = make_site(tmp_path, profile)
    for stage in WRITING:
        for step in stage.steps(site):
            step.act()
        found = judging.findings(stage, site)
        assert not has_failed(found), [one for one in found if one.outcome is Outcome.FAILED]
        assert all((tmp_path / "artifacts" / name).is_file() for name in site.files[stage.number])


def test_before_their_steps_the_first_check_fails(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    for stage in WRITING:
        assert judging.findings(stage, site)[0].outcome is Outcome.FAILED


def test_inputs_are_the_hashes_of_the_recipes_and_of_no_other(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    inputs = [stage.inputs(site) for stage in WRITING]
    assert [sorted(one) for one in inputs] == [
        ["pki"],
        ["kubeadmin", "kubeconfigs"],
        ["manifests", "static-pods"],
        ["ignition"],
    ]
    changed = replace(site, hashes={**site.hashes, "ignition": "other"})
    assert [stage.inputs(changed) == one for stage, one in zip(WRITING, inputs, strict=True)] == [True] * 3 + [False]


def test_what_came_of_it_is_told_by_path(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    for stage in WRITING:
        assert isinstance(stage, Producing)
        assert set(stage.outputs(site)) == set(site.files[stage.number])
