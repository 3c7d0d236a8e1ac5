"""Rules about custom resource definitions: they hold, and each fires."""

import json
from typing import Any, Final

import pytest
from tests.support import release_directory
from tests.support.hardway_everything import everything, usual
from tests.support.hardway_lint import Sample, Subject, changed, complaint
from tests.support.hardway_manifests import added, dropped, edited, moved

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.crd_rules import RULES, definitions
from umbilical.checks.check import Outcome

BY_ID: Final = {rule.id: rule for rule in RULES}
DNS: Final = "dnses.config.openshift.io"


def _early_version_operator(seen: Subject) -> None:
    late = "late-static-pods/bootstrap/cvo-bootstrap.yaml"
    seen.write("static-pods/bootstrap/cvo-bootstrap.yaml", seen.assets[late].content)
    seen.remove(late)


def _preview(value: Any) -> None:
    value["metadata"]["annotations"]["release.openshift.io/feature-set"] = "TechPreviewNoUpgrade"


SAMPLES: Final[dict[str, Sample]] = {
    "CRD-01": dropped("CustomResourceDefinition", DNS),
    "CRD-01 too late": moved(f"02-crd-{DNS}.yaml", f"09-crd-{DNS}.yaml"),
    "CRD-01 other version": edited("DNS", "cluster", lambda one: one.update(apiVersion="config.openshift.io/v2")),
    "CRD-01 operator at once": _early_version_operator,
    "CRD-02": added("02-crd-twice.yaml", release_directory.crd(DNS, required=True)),
    "CRD-02 preview": edited("CustomResourceDefinition", DNS, _preview),
    "CRD-02 other profile": edited(
        "CustomResourceDefinition", DNS, lambda one: one["metadata"].update(annotations={"a": "b"})
    ),
    "CRD-03": dropped("CustomResourceDefinition", "oauths.config.openshift.io"),
    "CRD-03 too many": added("02-crd-more.yaml", release_directory.crd("more.config.openshift.io", required=True)),
    "CRD-03 version operator": dropped("CustomResourceDefinition", "clusteroperators.config.openshift.io"),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
@pytest.mark.parametrize(("masters", "workers"), [(3, 2), (1, 0)])
def test_a_rule_holds_for_what_is_rendered(rule: Any, masters: int, workers: int) -> None:
    assert complaint(rule, usual(Profile.OPENSHIFT, masters, workers)) is None


@pytest.mark.parametrize("name", SAMPLES)
def test_a_rule_fires_after_the_change_that_it_is_there_for(name: str) -> None:
    found = complaint(BY_ID[name.split(maxsplit=1)[0]], changed(everything(Profile.OPENSHIFT), SAMPLES[name]))
    assert found is not None


def test_every_rule_has_a_sample() -> None:
    assert {name.split()[0] for name in SAMPLES} == set(BY_ID)


def test_a_wrong_count_only_warns() -> None:
    seen = changed(everything(Profile.OPENSHIFT), SAMPLES["CRD-03"])
    verdict = BY_ID["CRD-03"].check.judge(seen.facts())
    assert verdict.outcome is Outcome.WARNED
    assert verdict.evidence == "21 definitions are marked as needed for the bootstrap, 4.18 has 22"


def test_a_line_that_nobody_counted_is_not_judged_by_number() -> None:
    def newer(seen: Subject) -> None:
        path = "machine-config/image-references"
        value = json.loads(seen.assets[path].content)
        value["metadata"]["name"] = "4.99.0"
        seen.write(path, json.dumps(value).encode())

    verdict = BY_ID["CRD-03"].check.judge(changed(everything(Profile.OPENSHIFT), newer).facts())
    assert verdict.outcome is Outcome.SKIPPED
    assert "4.99" in verdict.evidence


def test_all_definitions_are_found() -> None:
    assert len(definitions(usual(Profile.OPENSHIFT).facts())) == 25
