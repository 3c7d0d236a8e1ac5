"""Rules about single objects that are applied before operators run."""

from collections.abc import Iterator
from typing import Any, Final

import yaml

from umbilical.hardway.lint.applied import dig, entries, mapping, need, release_version, text
from umbilical.hardway.lint.facts import OPENSHIFT, LintFacts, LintRule, rule
from umbilical.hardway.lint.object_rules import version_operator_faults

CONFIG: Final = "config.openshift.io"
OPERATOR: Final = "operator.openshift.io"
FEATURE_GATE_INPUT: Final = "machine-config/manifests/99_feature-gate.yaml"
ETCD_BOOTSTRAP: Final = "alpha.installer.openshift.io/etcd-bootstrap"
# By number of masters, and by number of nodes for workloads; larger numbers are HighlyAvailable.
_CONTROL_PLANE: Final = {1: "SingleReplica", 2: "DualReplica"}
_INFRASTRUCTURE: Final = {1: "SingleReplica"}
_MANY: Final = "HighlyAvailable"


def _desired_update(facts: LintFacts) -> Iterator[str]:
    found = need(facts, "ClusterVersion", "version", group=CONFIG)
    if "desiredUpdate" in mapping(found.value, "spec"):
        yield f"{found.path}: spec.desiredUpdate is set"


def _gate_precedes(facts: LintFacts) -> Iterator[str]:
    gate = need(facts, "FeatureGate", "cluster", group=CONFIG)
    version = need(facts, "ClusterVersion", "version", group=CONFIG)
    if gate.place > version.place:
        yield f"{gate.path} comes after {version.path}, after which the version operator starts"
    yield from version_operator_faults(facts)


def _gate_status(facts: LintFacts) -> Iterator[str]:
    gate = need(facts, "FeatureGate", "cluster", group=CONFIG)
    version = release_version(facts)
    actual = [text(one, "version") for one in entries(gate.value, "status", "featureGates")]
    if version not in actual:
        yield f"{gate.path}: status.featureGates has {', '.join(actual) or 'no version'}, the release is {version}"
    given = facts.document(FEATURE_GATE_INPUT)
    if given != gate.value:
        yield f"{FEATURE_GATE_INPUT} differs from {gate.path}"


def _topologies(facts: LintFacts) -> Iterator[str]:
    found = need(facts, "Infrastructure", "cluster", group=CONFIG)
    masters, workers = len(facts.cluster.masters), len(facts.cluster.workers)
    wanted = {
        "controlPlaneTopology": _CONTROL_PLANE.get(masters, _MANY),
        "infrastructureTopology": _INFRASTRUCTURE.get(workers or masters, _MANY),
    }
    for field, value in wanted.items():
        actual = dig(found.value, "status", field)
        if actual != value:
            yield f"{found.path}: status.{field} is {actual}, not {value} ({masters} masters, {workers} workers)"
    # The status is written by a separate request, which needs the subresource.
    crd = need(facts, "CustomResourceDefinition", f"infrastructures.{CONFIG}", group="apiextensions.k8s.io")
    versions = [one for one in entries(crd.value, "spec", "versions") if text(one, "name") == found.version]
    if not any("status" in mapping(one, "subresources") for one in versions):
        yield f"{crd.path}: {found.version} has no status subresource, so the status cannot be written"


def _platform(facts: LintFacts) -> Iterator[str]:
    found = need(facts, "Infrastructure", "cluster", group=CONFIG)
    actual = text(found.value, "status", "platformStatus", "type")
    if not actual:
        yield f"{found.path}: status.platformStatus.type is not set"
    elif actual != text(found.value, "spec", "platformSpec", "type"):
        yield f"{found.path}: the status has platform {actual}, the spec has another one"


def _networks(facts: LintFacts) -> Iterator[str]:
    networks = facts.cluster.networks
    wanted = {
        "clusterNetwork": [{"cidr": str(networks.pods), "hostPrefix": networks.host_prefix}],
        "serviceNetwork": [str(networks.services)],
    }
    for group in (CONFIG, OPERATOR):
        found = need(facts, "Network", "cluster", group=group)
        for field, value in wanted.items():
            actual = dig(found.value, "spec", field)
            if actual != value:
                yield f"{found.path}: spec.{field} is {actual}, not {value} as in cluster.yaml"


def _operator_network(facts: LintFacts) -> Iterator[str]:
    found = need(facts, "Network", "cluster", group=OPERATOR)
    crd = need(facts, "CustomResourceDefinition", f"networks.{OPERATOR}", group="apiextensions.k8s.io")
    if crd.place > found.place:
        yield f"{found.path} comes before its CRD {crd.path}"


def _install_config(facts: LintFacts) -> Iterator[str]:
    found = need(facts, "ConfigMap", "cluster-config-v1", "kube-system")
    try:
        config: Any = yaml.safe_load(text(found.value, "data", "install-config"))
    except (yaml.YAMLError, ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        yield f"{found.path}: install-config is not a YAML mapping"
        return
    replicas = dig(config, "controlPlane", "replicas")
    if str(replicas) != str(len(facts.cluster.masters)):
        yield f"{found.path}: controlPlane.replicas is {replicas}, there are {len(facts.cluster.masters)} masters"
    if "pullSecret" in config:
        yield f"{found.path}: it contains the pull secret, and many users may read it"


def _etcd_endpoints(facts: LintFacts) -> Iterator[str]:
    found = need(facts, "ConfigMap", "etcd-endpoints", "openshift-etcd")
    address = str(facts.cluster.bootstrap.address)
    actual = dig(found.value, "metadata", "annotations", ETCD_BOOTSTRAP)
    if actual != address:
        yield f"{found.path}: annotation {ETCD_BOOTSTRAP} is {actual}, not the bootstrap node's address {address}"
    if found.value.get("data") or found.value.get("binaryData"):
        yield f"{found.path}: it has data, which is for members by id"


def _is(facts: LintFacts, kind: str, field: str, wanted: str) -> Iterator[str]:
    found = need(facts, kind, "cluster", group=CONFIG)
    actual = dig(found.value, "spec", field)
    if actual != wanted:
        yield f"{found.path}: spec.{field} is {actual}, not {wanted}"


RULES: Final[tuple[LintRule, ...]] = (
    rule(
        "CVO-05",
        "the ClusterVersion has no desiredUpdate",
        "At its first start the version operator installs its own release; with a desiredUpdate it tries to update a "
        "cluster that is not installed.",
        "remove spec.desiredUpdate from the ClusterVersion",
        _desired_update,
        profiles=OPENSHIFT,
    ),
    rule(
        "FG-01",
        "the FeatureGate exists before the version operator starts",
        "Without it the operator detects changed gates, and shuts down and restarts without end.",
        "apply FeatureGate cluster before the ClusterVersion, and start the operator's pod after both",
        _gate_precedes,
        profiles=OPENSHIFT,
    ),
    rule(
        "FG-02",
        "the FeatureGate's status has the version of the release, here and for the machine-config commands",
        'Operators look for their own version there, and stop with "missing desired version".',
        "use the gates of featureGate-SelfManagedHA-Default.yaml with the release's version",
        _gate_status,
        profiles=OPENSHIFT,
    ),
    rule(
        "INF-01",
        "Infrastructure's status has the topologies, and can be written",
        'The etcd operator reports "ControlPlaneTopology was not set" and adds no member.',
        "set both topologies in the status of Infrastructure cluster, by the numbers of masters and workers",
        _topologies,
        profiles=OPENSHIFT,
    ),
    rule(
        "INF-02",
        "Infrastructure's status has the platform",
        "Operators read status.platformStatus.type, not the spec.",
        "set status.platformStatus.type to the value of spec.platformSpec.type",
        _platform,
        profiles=OPENSHIFT,
    ),
    rule(
        "NET-01",
        "both Network objects exist and have the networks of cluster.yaml",
        "The network operator reads its own object, other operators read the one of config.openshift.io. If they "
        "differ, half of the routes are missing.",
        "render both from the same networks",
        _networks,
        profiles=OPENSHIFT,
    ),
    rule(
        "NET-02",
        "the network operator's object comes after its CRD",
        "Its CRD is not marked as required for the bootstrap. If the object is applied before its CRD, the API rejects "
        "it.",
        "apply networks.operator.openshift.io from the release's network manifests first",
        _operator_network,
        profiles=OPENSHIFT,
    ),
    rule(
        "CC-01",
        "cluster-config-v1 contains the install-config without the pull secret",
        "The operators of etcd, network and machine config read replica counts from it; many users may read it.",
        "write install-config with controlPlane.replicas and without pullSecret",
        _install_config,
        profiles=OPENSHIFT,
    ),
    rule(
        "EE-01",
        "etcd-endpoints has the bootstrap etcd in an annotation and no data",
        "The etcd operator reads the annotation, and treats all data as members by id.",
        f"annotate openshift-etcd/etcd-endpoints with {ETCD_BOOTSTRAP}, and remove its data",
        _etcd_endpoints,
        profiles=OPENSHIFT,
    ),
    rule(
        "DNS-01",
        "the DNS object has the cluster's own domain",
        "With the base domain, names of routes and of the API lack the cluster's name and do not resolve.",
        "set spec.baseDomain of DNS cluster to NAME.BASEDOMAIN",
        lambda facts: _is(facts, "DNS", "baseDomain", facts.cluster.domain),
        profiles=OPENSHIFT,
    ),
    rule(
        "ING-01",
        "the Ingress object has the domain of routes",
        "Without it the ingress operator cannot create its default controller; console and authentication wait for it.",
        "set spec.domain of Ingress cluster to apps.NAME.BASEDOMAIN",
        lambda facts: _is(facts, "Ingress", "domain", f"apps.{facts.cluster.domain}"),
        profiles=OPENSHIFT,
    ),
)
