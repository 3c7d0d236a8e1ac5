"""Rules about objects that are applied before operators come: they hold, and each fires."""

from typing import Any, Final

import pytest
from tests.support.hardway_everything import everything, usual
from tests.support.hardway_lint import Sample, Subject, changed, complaint
from tests.support.hardway_manifests import dropped, edited, moved

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.manifest_rules import RULES
from umbilical.checks.check import Outcome

BY_ID: Final = {rule.id: rule for rule in RULES}
ETCD_BOOTSTRAP: Final = "alpha.installer.openshift.io/etcd-bootstrap"


def _early_version_operator(seen: Subject) -> None:
    late = "late-static-pods/bootstrap/cvo-bootstrap.yaml"
    seen.write("static-pods/bootstrap/cvo-bootstrap.yaml", seen.assets[late].content)


def _install_config(old: str, new: str) -> Sample:
    def change(value: Any) -> None:
        text = value["data"]["install-config"]
        assert old in text
        value["data"]["install-config"] = text.replace(old, new)

    return edited("ConfigMap", "cluster-config-v1", change)


def _spec(kind: str, field: str, value: Any, group: str = "") -> Sample:
    return edited(kind, "cluster", lambda one: one["spec"].update({field: value}), group)


def _status(field: str, value: Any) -> Sample:
    return edited("Infrastructure", "cluster", lambda one: one["status"].update({field: value}))


def _without_subresource(value: Any) -> None:
    for version in value["spec"]["versions"]:
        version.pop("subresources")


SAMPLES: Final[dict[str, Sample]] = {
    "CVO-05": edited("ClusterVersion", "version", lambda one: one["spec"].update(desiredUpdate={"version": "4.18.0"})),
    "CVO-05 none": dropped("ClusterVersion", "version"),
    "FG-01": dropped("FeatureGate", "cluster"),
    "FG-01 too late": moved("04-feature-gate.yaml", "08-feature-gate.yaml"),
    "FG-01 operator at once": _early_version_operator,
    "FG-01 no operator": lambda seen: seen.remove("late-static-pods/bootstrap/cvo-bootstrap.yaml"),
    "FG-02": edited("FeatureGate", "cluster", lambda one: one.pop("status")),
    "FG-02 other version": edited(
        "FeatureGate", "cluster", lambda one: one["status"]["featureGates"][0].update(version="4.17.0")
    ),
    "FG-02 other input": lambda seen: seen.replace(
        "machine-config/manifests/99_feature-gate.yaml", "ExampleNewFeature", "Other"
    ),
    "FG-02 no input": lambda seen: seen.remove("machine-config/manifests/99_feature-gate.yaml"),
    "INF-01": edited("Infrastructure", "cluster", lambda one: one.pop("status")),
    "INF-01 control plane": _status("controlPlaneTopology", "SingleReplica"),
    "INF-01 infrastructure": _status("infrastructureTopology", "SingleReplica"),
    "INF-01 no subresource": edited(
        "CustomResourceDefinition", "infrastructures.config.openshift.io", _without_subresource
    ),
    "INF-02": _status("platformStatus", {}),
    "INF-02 differs": _status("platformStatus", {"type": "AWS"}),
    "NET-01": _spec("Network", "serviceNetwork", ["10.0.0.0/16"], "config"),
    "NET-01 operator": _spec("Network", "clusterNetwork", [{"cidr": "10.128.0.0/14", "hostPrefix": 24}], "operator"),
    "NET-01 missing": lambda seen: seen.remove("manifests/05-network-operator.yaml"),
    "NET-02": moved("05-network-operator.yaml", "01-network-operator.yaml"),
    "NET-02 no definition": dropped("CustomResourceDefinition", "networks.operator.openshift.io"),
    "CC-01": dropped("ConfigMap", "cluster-config-v1", "kube-system"),
    "CC-01 replicas": _install_config("replicas: 3", "replicas: 2"),
    "CC-01 pull secret": _install_config("publish: External", "pullSecret: '{}'"),
    "CC-01 no YAML": edited("ConfigMap", "cluster-config-v1", lambda one: one["data"].update({"install-config": "["})),
    "CC-01 nothing": edited("ConfigMap", "cluster-config-v1", lambda one: one.update(data=[])),
    "EE-01": edited("ConfigMap", "etcd-endpoints", lambda one: one["metadata"].pop("annotations")),
    "EE-01 data": edited(
        "ConfigMap", "etcd-endpoints", lambda one: one.update(data={"bootstrapIP": "192.168.126.100"})
    ),
    "EE-01 other address": edited(
        "ConfigMap", "etcd-endpoints", lambda one: one["metadata"]["annotations"].update({ETCD_BOOTSTRAP: "10.0.0.1"})
    ),
    "DNS-01": _spec("DNS", "baseDomain", "example.com"),
    "ING-01": _spec("Ingress", "domain", "ocp4.example.com"),
    "ING-01 missing": dropped("Ingress", "cluster"),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
@pytest.mark.parametrize(("masters", "workers"), [(3, 2), (1, 0), (3, 1), (2, 0)])
def test_a_rule_holds_for_what_is_rendered(rule: Any, masters: int, workers: int) -> None:
    assert complaint(rule, usual(Profile.OPENSHIFT, masters, workers)) is None


@pytest.mark.parametrize("name", SAMPLES)
def test_a_rule_fires_after_the_change_that_it_is_there_for(name: str) -> None:
    found = complaint(BY_ID[name.split(maxsplit=1)[0]], changed(everything(Profile.OPENSHIFT), SAMPLES[name]))
    assert found is not None


def test_every_rule_has_a_sample() -> None:
    assert {name.split()[0] for name in SAMPLES} == set(BY_ID)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_kubernetes_profile_has_none_of_these_objects(rule: Any) -> None:
    verdict = rule.check.judge(usual(Profile.KUBERNETES).facts())
    assert verdict.outcome is Outcome.SKIPPED


def test_the_evidence_names_the_file_and_both_values() -> None:
    found = complaint(BY_ID["DNS-01"], changed(everything(Profile.OPENSHIFT), SAMPLES["DNS-01"]))
    assert found == "manifests/05-dns.yaml: spec.baseDomain is example.com, it has to be ocp4.example.com"
