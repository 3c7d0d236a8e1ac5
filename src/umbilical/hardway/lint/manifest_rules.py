"""Rules about the objects that are applied before operators come: each topic's object, and all of them together."""

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
# By number of masters, and by number of nodes for workloads; more of either is HighlyAvailable.
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
        yield f"{gate.path} comes after {version.path}, for which the version operator waits"
    yield from version_operator_faults(facts)


def _gate_status(facts: LintFacts) -> Iterator[str]:
    gate = need(facts, "FeatureGate", "cluster", group=CONFIG)
    version = release_version(facts)
    told = [text(one, "version") for one in entries(gate.value, "status", "featureGates")]
    if version not in told:
        yield f"{gate.path}: status.featureGates is for {', '.join(told) or 'no version'}, the release is {version}"
    given = facts.document(FEATURE_GATE_INPUT)
    if given != gate.value:
        yield f"{FEATURE_GATE_INPUT} is another object than {gate.path}"


def _topologies(facts: LintFacts) -> Iterator[str]:
    found = need(facts, "Infrastructure", "cluster", group=CONFIG)
    masters, workers = len(facts.cluster.masters), len(facts.cluster.workers)
    wanted = {
        "controlPlaneTopology": _CONTROL_PLANE.get(masters, _MANY),
        "infrastructureTopology": _INFRASTRUCTURE.get(workers or masters, _MANY),
    }
    for field, value in wanted.items():
        told = dig(found.value, "status", field)
        if told != value:
            yield f"{found.path}: status.{field} is {told}, {masters} masters and {workers} workers make it {value}"
    # Its status is written by a call of its own, which there is only with the subresource.
    crd = need(facts, "CustomResourceDefinition", f"infrastructures.{CONFIG}", group="apiextensions.k8s.io")
    versions = [one for one in entries(crd.value, "spec", "versions") if text(one, "name") == found.version]
    if not any("status" in mapping(one, "subresources") for one in versions):
        yield f"{crd.path}: {found.version} has no status subresource, by which the status could be written"


def _platform(facts: LintFacts) -> Iterator[str]:
    found = need(facts, "Infrastructure", "cluster", group=CONFIG)
    told = text(found.value, "status", "platformStatus", "type")
    if not told:
        yield f"{found.path}: status.platformStatus.type is not set"
    elif told != text(found.value, "spec", "platformSpec", "type"):
        yield f"{found.path}: platform {told} in the status, another one in the spec"


def _networks(facts: LintFacts) -> Iterator[str]:
    networks = facts.cluster.networks
    wanted = {
        "clusterNetwork": [{"cidr": str(networks.pods), "hostPrefix": networks.host_prefix}],
        "serviceNetwork": [str(networks.services)],
    }
    for group in (CONFIG, OPERATOR):
        found = need(facts, "Network", "cluster", group=group)
        for field, value in wanted.items():
            told = dig(found.value, "spec", field)
            if told != value:
                yield f"{found.path}: spec.{field} is {told}, the config says {value}"


def _operator_network(facts: LintFacts) -> Iterator[str]:
    found = need(facts, "Network", "cluster", group=OPERATOR)
    crd = need(facts, "CustomResourceDefinition", f"networks.{OPERATOR}", group="apiextensions.k8s.io")
    if crd.place > found.place:
        yield f"{found.path} comes before its definition {crd.path}"


def _install_config(facts: LintFacts) -> Iterator[str]:
    found = need(facts, "ConfigMap", "cluster-config-v1", "kube-system")
    try:
        config: Any = yaml.safe_load(text(found.value, "data", "install-config"))
    except (yaml.YAMLError, ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        yield f"{found.path}: install-config is no YAML mapping"
        return
    replicas = dig(config, "controlPlane", "replicas")
    if str(replicas) != str(len(facts.cluster.masters)):
        yield f"{found.path}: controlPlane.replicas is {replicas}, there are {len(facts.cluster.masters)} masters"
    if "pullSecret" in config:
        yield f"{found.path}: the pull secret is in it, and many may read it"


def _etcd_endpoints(facts: LintFacts) -> Iterator[str]:
    found = need(facts, "ConfigMap", "etcd-endpoints", "openshift-etcd")
    address = str(facts.cluster.bootstrap.address)
    told = dig(found.value, "metadata", "annotations", ETCD_BOOTSTRAP)
    if told != address:
        yield f"{found.path}: annotation {ETCD_BOOTSTRAP} is {told}, the bootstrap node has {address}"
    if found.value.get("data") or found.value.get("binaryData"):
        yield f"{found.path}: it has data, which is for members by their ids"


def _is(facts: LintFacts, kind: str, field: str, wanted: str) -> Iterator[str]:
    found = need(facts, kind, "cluster", group=CONFIG)
    told = dig(found.value, "spec", field)
    if told != wanted:
        yield f"{found.path}: spec.{field} is {told}, it has to be {wanted}"


RULES: Final[tuple[LintRule, ...]] = (
    rule(
        "CVO-05",
        "the ClusterVersion wants no update",
        "At its first start the version operator installs the release that it runs from; with a desired update it "
        "looks for that one instead, in a cluster that is not there yet.",
        "leave spec.desiredUpdate out of the ClusterVersion",
        _desired_update,
        profiles=OPENSHIFT,
    ),
    rule(
        "FG-01",
        "the FeatureGate is there before the version operator starts",
        "Without it the operator compares its own gates with nothing, sees a change, and shuts down again and again.",
        "apply FeatureGate cluster before the ClusterVersion, and keep the operator's pod back until then",
        _gate_precedes,
        profiles=OPENSHIFT,
    ),
    rule(
        "FG-02",
        "the FeatureGate's status is for the version of the release, here and for the machine-config commands",
        'Whoever reads gates looks for its own version there, and stops with "missing desired version".',
        "take the gates of featureGate-SelfManagedHA-Default.yaml with the release's version",
        _gate_status,
        profiles=OPENSHIFT,
    ),
    rule(
        "INF-01",
        "Infrastructure says in how many replicas things run, and its status can be written",
        'The etcd operator says "ControlPlaneTopology was not set" and adds no member.',
        "give Infrastructure cluster a status with both topologies, as the numbers of masters and workers make them",
        _topologies,
        profiles=OPENSHIFT,
    ),
    rule(
        "INF-02",
        "Infrastructure's status names the platform",
        "Operators decide by status.platformStatus.type, not by the spec.",
        "set status.platformStatus.type to what spec.platformSpec.type is",
        _platform,
        profiles=OPENSHIFT,
    ),
    rule(
        "NET-01",
        "both Network objects exist and have the config's networks",
        "The network operator deploys from its own object, and others read the config's: two truths give a cluster "
        "in which half of the routes are missing.",
        "write both from the same networks",
        _networks,
        profiles=OPENSHIFT,
    ),
    rule(
        "NET-02",
        "the network operator's object comes after its definition",
        "Its definition is not among those that the bootstrap brings; applied too early the object is lost without "
        "a word where errors are ignored.",
        "apply networks.operator.openshift.io out of the release's network manifests first",
        _operator_network,
        profiles=OPENSHIFT,
    ),
    rule(
        "CC-01",
        "cluster-config-v1 holds the installer's configuration, and no pull secret",
        "Operators of etcd, network and machine config read numbers of replicas from it; many may read it.",
        "write install-config with controlPlane.replicas and without pullSecret",
        _install_config,
        profiles=OPENSHIFT,
    ),
    rule(
        "EE-01",
        "etcd-endpoints names the bootstrap etcd by annotation and has no data",
        "The etcd operator looks for the annotation; data are members by their ids, and are taken for such.",
        f"annotate openshift-etcd/etcd-endpoints with {ETCD_BOOTSTRAP}",
        _etcd_endpoints,
        profiles=OPENSHIFT,
    ),
    rule(
        "DNS-01",
        "the DNS object has the cluster's own domain",
        "With the base domain, names of routes and of the API lack the cluster's part, and nobody serves them.",
        "set spec.baseDomain of DNS cluster to NAME.BASEDOMAIN",
        lambda facts: _is(facts, "DNS", "baseDomain", facts.cluster.domain),
        profiles=OPENSHIFT,
    ),
    rule(
        "ING-01",
        "the Ingress object has the domain of routes",
        "Without it the ingress operator cannot make its default controller; console and authentication never come.",
        "set spec.domain of Ingress cluster to apps.NAME.BASEDOMAIN",
        lambda facts: _is(facts, "Ingress", "domain", f"apps.{facts.cluster.domain}"),
        profiles=OPENSHIFT,
    ),
)
