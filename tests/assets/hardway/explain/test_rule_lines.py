"""Each rule stands in the page of the stage that asks it."""

import pytest

from umbilical.assets.hardway.explain.rule_lines import BY_HAND, stage_of
from umbilical.assets.hardway.lint.catalogue import RULES
from umbilical.checks.report import group_of
from umbilical.hardway.stages import catalogue
from umbilical.hardway.stages.artifact_stage import ArtifactStage

STAGES = [stage for stage in catalogue.stages() if isinstance(stage, ArtifactStage)]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_a_rule_that_a_stage_asks_stands_in_its_page(stage: ArtifactStage) -> None:
    asked = [rule.id for rule in RULES if group_of(rule.id) in stage.groups or rule.id in stage.rules]
    assert asked
    assert {stage_of(one) for one in asked} == {stage.number}


def test_lines_of_certificates_name_files_that_exist() -> None:
    assert "artifacts/tls/etcd-serving-bootstrap.crt" in BY_HAND["PKI-01"]
