"""Rules about applied objects and custom resource definitions: the faults that each notices."""

from typing import Any, Final

from tests.support import release_directory
from tests.support.hardway_everything import everything, usual
from tests.support.hardway_lint import Sample, Subject, changed, complaint, verdict
from tests.support.hardway_manifests import added, dropped, edited, moved

from umbilical.bootstrap.names import BOOTKUBE
from umbilical.checks.check import Outcome
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.lint.manifest_rules import RULES

ETCD_BOOTSTRAP: Final = "alpha.installer.openshift.io/etcd-bootstrap"
DNS: Final = "dnses.config.openshift.io"


def _early_version_operator(seen: Subject) -> None:
    late = "late-static-pods/bootstrap/cvo-bootstrap.yaml"
    seen.write("static-pods/bootstrap/cvo-bootstrap.yaml", seen.assets[late].content)
    seen.remove(late)


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


def _binding(kind: str, role: str, namespace: str = "") -> dict[str, Any]:
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": "more", **place},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [],
    }


def _config_map(namespace: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more", "namespace": namespace}}


def _ends_with(line: bytes) -> Sample:
    return lambda seen: seen.edit_ignition("bootstrap", BOOTKUBE, lambda content: content + line)


def _preview(value: Any) -> None:
    value["metadata"]["annotations"]["release.openshift.io/feature-set"] = "TechPreviewNoUpgrade"


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
    "MAN-01": added("09-twice.yaml", _config_map("kube-system"), _config_map("kube-system")),
    "MAN-01 no namespace": added("00-early.yaml", _config_map("somewhere")),
    "MAN-01 no role": added("09-binding.yaml", _binding("ClusterRole", "nobody")),
    "MAN-01 role elsewhere": added("09-binding.yaml", _binding("Role", "view", "kube-system")),
    "MAN-01 no kind": added("09-thing.yaml", {"apiVersion": "v1", "metadata": {"name": "a"}}),
    "MAN-01 no name": added("09-thing.yaml", {"apiVersion": "v1", "kind": "Pod", "metadata": []}),
    "MAN-02": _ends_with(b"\noc apply -f /opt/openshift/manifests || true\n"),
    "MAN-02 colon": _ends_with(b"\noc create -f x ||: # later\n"),
    "MAN-02 set": _ends_with(b"\n  set +e\n"),
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


def test_other_counts_of_nodes_are_judged_too() -> None:
    for masters, workers in ((3, 1), (2, 0)):
        assert [complaint(rule.id, usual(ClusterProfile.OPENSHIFT, masters, workers)) for rule in RULES] == [
            None
        ] * len(RULES)


def test_the_evidence_names_the_file_and_both_values() -> None:
    found = complaint("DNS-01", changed(everything(ClusterProfile.OPENSHIFT), SAMPLES["DNS-01"]))
    assert found == "manifests/05-dns.yaml: spec.baseDomain is example.com, not ocp4.example.com"


def test_a_role_of_openshift_is_none_in_upstream_kubernetes() -> None:
    sample = added("09-binding.yaml", _binding("ClusterRole", "system:node-admin"))
    assert complaint("MAN-01", changed(everything(ClusterProfile.OPENSHIFT), sample)) is None
    found = complaint("MAN-01", changed(everything(ClusterProfile.KUBERNETES), sample))
    assert found is not None
    assert "system:node-admin" in found


def test_the_machine_config_script_is_judged_too() -> None:
    def ignoring(seen: Subject) -> None:
        seen.replace("machine-config/render.sh", "done\n", "done\nmore || true\n")

    assert complaint("MAN-02", changed(everything(ClusterProfile.OPENSHIFT), ignoring)) is not None


def test_a_comment_about_it_is_no_fault() -> None:
    sample = _ends_with(b"\necho done # not: || true\n")
    assert complaint("MAN-02", changed(everything(ClusterProfile.OPENSHIFT), sample)) is None


def test_a_role_that_a_manifest_brings_may_be_bound() -> None:
    sample = edited(
        "ClusterRoleBinding", "kube-apiserver", lambda one: one["roleRef"].update(name="system:openshift:scc:anyuid")
    )
    assert complaint("MAN-01", changed(everything(ClusterProfile.OPENSHIFT), sample)) is None


def test_a_wrong_count_only_warns() -> None:
    found = verdict("CRD-03", changed(everything(ClusterProfile.OPENSHIFT), SAMPLES["CRD-03"]))
    assert found.outcome is Outcome.WARNED
    assert found.evidence == "21 CRDs are marked as required for the bootstrap, 4.18 has 22"


def test_a_line_that_nobody_counted_is_not_judged_by_number() -> None:
    def newer(seen: Subject) -> None:
        seen.edit_json("machine-config/image-references", lambda value: value["metadata"].update(name="4.99.0"))

    found = verdict("CRD-03", changed(everything(ClusterProfile.OPENSHIFT), newer))
    assert found.outcome is Outcome.SKIPPED
    assert "4.99" in found.evidence
