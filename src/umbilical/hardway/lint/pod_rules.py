"""Rules about static pods: version operator, etcd, kube-apiserver, kube-proxy, and the tunnel."""

import re
from collections.abc import Iterator
from typing import Any, Final

from umbilical.bootstrap.verify.documents import dig, mappings, shown
from umbilical.hardway.artifacts import layout
from umbilical.hardway.lint import service_proxies, tunnel_ends
from umbilical.hardway.lint.facts import OPENSHIFT, LintFacts, LintRule, RuleSeverity, kube_proxy, rule, tunnel
from umbilical.hardway.lint.pods import StaticPod, program_pod, static_pods

CVO: Final = "cluster-version-operator"
CLUSTER_PROFILE: Final = "self-managed-high-availability"
BOOTSTRAP_MEMBER: Final = "etcd-bootstrap"
ETCD_PREFIX: Final = "kubernetes.io"
WORKLOADS: Final = ("Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "Job", "CronJob", "Pod")
_DIGEST: Final = re.compile(r"@sha256:[0-9a-f]{64}$")
_RENDER: Final = "umbilical stage plan shows how the file differs from the rendered one"


def _cvo(facts: LintFacts) -> StaticPod:
    return program_pod(facts, CVO, facts.cluster.bootstrap)


def _cvo_image(facts: LintFacts) -> Iterator[str]:
    pod = _cvo(facts)
    image, release = pod.pod.container.get("image"), pod.flag("release-image")
    if image != release:
        yield f"{pod.path}: its image is {shown(image)}, but its --release-image is {release}"
    if not _DIGEST.search(release):
        yield f"{pod.path}: --release-image={release} has no digest"
    asked = facts.cluster.release.image
    if _DIGEST.search(asked) and asked != release:
        yield f"{pod.path}: it installs {release}, but release.image in cluster.yaml is {asked}"
    if not pod.is_late:
        yield f"{pod.path}: the kubelet starts it at once, before CRDs and FeatureGate exist"
    for path, one in facts.manifests:
        if one.get("kind") in WORKLOADS and dig(one, "metadata", "name") == CVO:
            yield f"{path}: the version operator is a {one.get('kind')}, but there is no node for it yet"


def _cvo_listen(facts: LintFacts) -> Iterator[str]:
    pod = _cvo(facts)
    value = pod.flag("listen")
    if value:
        yield f"{pod.path}: --listen={value} is not empty"


def _cvo_profile(facts: LintFacts) -> Iterator[str]:
    pod = _cvo(facts)
    variables = {one.get("name"): one.get("value") for one in mappings(pod.pod.container.get("env"))}
    if variables.get("CLUSTER_PROFILE") != CLUSTER_PROFILE:
        yield f"{pod.path}: CLUSTER_PROFILE is {shown(variables.get('CLUSTER_PROFILE'))}, not {CLUSTER_PROFILE}"


def _cvo_privilege(facts: LintFacts) -> Iterator[str]:
    pod = _cvo(facts)
    if dig(pod.pod.container, "securityContext", "privileged") is not True:
        yield f"{pod.path}: it is not privileged"


def _member(facts: LintFacts) -> Iterator[str]:
    pod = program_pod(facts, "etcd", facts.cluster.bootstrap)
    if pod.flag("name") != BOOTSTRAP_MEMBER:
        yield f"{pod.path}: --name={pod.flag('name')} is not {BOOTSTRAP_MEMBER}"


def _prefix(facts: LintFacts) -> Iterator[str]:
    pod = program_pod(facts, "kube-apiserver", facts.cluster.bootstrap)
    if pod.flag("etcd-prefix") != ETCD_PREFIX:
        yield f"{pod.path}: --etcd-prefix={pod.flag('etcd-prefix')} is not {ETCD_PREFIX}"


def _bootstrap_workloads(facts: LintFacts) -> Iterator[str]:
    node = facts.cluster.bootstrap
    for pod in static_pods(facts, node):
        if (pod.document.get("apiVersion"), pod.document.get("kind")) != ("v1", "Pod"):
            yield f"{pod.path} is a {shown(pod.document.get('kind'))}, but a standalone kubelet runs only pods"
        folder = layout.NODE_LATE_MANIFESTS if pod.is_late else layout.NODE_MANIFESTS
        if facts.ignition(node).file(f"{folder}/{pod.file}") is None:
            yield f"{layout.ignition(node)} does not write {folder}/{pod.file}"
    for path, one in facts.manifests:
        if one.get("kind") in WORKLOADS and _wants(_pod_spec(one), (node.id, node.name)):
            yield f"{path}: {one.get('kind')} {shown(dig(one, 'metadata', 'name'))} selects the bootstrap node"


def _pod_spec(workload: dict[str, Any]) -> Any:
    if workload.get("kind") == "Pod":
        return workload.get("spec")
    if workload.get("kind") == "CronJob":
        return dig(workload, "spec", "jobTemplate", "spec", "template", "spec")
    return dig(workload, "spec", "template", "spec")


def _wants(spec: Any, names: tuple[str, ...]) -> bool:
    selector = dig(spec, "nodeSelector")
    chosen = selector.get("kubernetes.io/hostname") if isinstance(selector, dict) else None
    return dig(spec, "nodeName") in names or chosen in names


RULES: Final[tuple[LintRule, ...]] = (
    rule(
        "BK-03",
        "all workloads on the bootstrap node are static pods",
        "The bootstrap node's kubelet never registers, so scheduled pods and DaemonSets for this node stay Pending.",
        "make it a static pod of the bootstrap node, or run it on masters",
        _bootstrap_workloads,
    ),
    rule(
        "CVO-01",
        "the version operator is a late static pod with the image of the release that it installs",
        "Another image does not contain the release's manifests. A tag differs from the digest in the Deployment, so "
        "the operator updates itself at once. If it starts too early, it fails because CRDs are missing.",
        _RENDER,
        _cvo_image,
        profiles=OPENSHIFT,
    ),
    rule(
        "CVO-02",
        "the version operator serves no metrics (--listen=)",
        "With a listening address it needs a serving certificate, which does not exist yet, and exits.",
        _RENDER,
        _cvo_listen,
        profiles=OPENSHIFT,
    ),
    rule(
        "CVO-03",
        "the version operator has the cluster profile",
        "Without CLUSTER_PROFILE it uses the default, and applies no manifests or wrong ones.",
        _RENDER,
        _cvo_profile,
        profiles=OPENSHIFT,
    ),
    rule(
        "CVO-04",
        "the version operator is privileged",
        "SELinux forbids other containers to read files of the host: permission denied on its kubeconfig.",
        _RENDER,
        _cvo_privilege,
        profiles=OPENSHIFT,
    ),
    rule(
        "ETC-01",
        "the bootstrap etcd member is named etcd-bootstrap",
        "The etcd operator searches for exactly this name; with another one the member is never removed.",
        _RENDER,
        _member,
        profiles=OPENSHIFT,
    ),
    rule(
        "ETC-02",
        "the bootstrap API server has the same etcd prefix as the masters",
        "OpenShift's API servers read /kubernetes.io; after the pivot they do not see objects below /registry.",
        _RENDER,
        _prefix,
        profiles=OPENSHIFT,
    ),
    rule(
        "KP-01",
        "kube-proxy has its own image, is privileged and uses the host network",
        "hyperkube has no kube-proxy: `ID cannot be empty`. Without privileges kube-proxy cannot write rules.",
        "use the release's image kube-proxy",
        service_proxies.pod_faults,
        kube_proxy,
    ),
    rule(
        "KP-02",
        "kube-proxy's user may read services",
        "kube-proxy runs, but logs `services is forbidden`, and no cluster IP works.",
        "bind the kubeconfig's user to system:node-proxier",
        service_proxies.right_faults,
        kube_proxy,
    ),
    rule(
        "KP-03",
        "cluster IPs work on every node that needs them",
        "Operators and pods connect to the API at the first service address, time out and are in CrashLoopBackOff.",
        "set kubeProxy in cluster.yaml: `on` if operators time out at the first service address, or the network plugin "
        "does not implement Services; else `off`",
        service_proxies.coverage_faults,
    ),
    rule(
        "KP-04",
        "kube-proxy is removed when the network operator is Available",
        "kube-proxy and the network plugin overwrite each other's rules.",
        _RENDER,
        service_proxies.removal_faults,
        kube_proxy,
        profiles=OPENSHIFT,
    ),
    rule(
        "KN-01",
        "the tunnel's server and kube-apiserver use the same socket",
        "The two pods mount the socket's directory under different paths; a wrong path gives `no such file or "
        "directory`.",
        _RENDER,
        tunnel_ends.socket_faults,
        tunnel,
    ),
    rule(
        "KN-02",
        "connections to the cluster use gRPC through the tunnel; control plane and etcd are direct",
        "With etcd in the tunnel the API never starts; with another protocol both ends report protocol errors.",
        _RENDER,
        tunnel_ends.protocol_faults,
        tunnel,
    ),
    rule(
        "KN-03",
        "agents dial the server's port and the address in its certificate",
        "Agents get connection refused, or `x509: certificate is valid for ..., not ...`, and pods are not reachable.",
        _RENDER,
        tunnel_ends.agent_faults,
        tunnel,
    ),
    rule(
        "KN-04",
        "the tunnel's agents and server are removed after the bootstrap member has left etcd",
        "Otherwise agents dial a machine that no longer exists. If the tunnel is removed too early, webhooks time out.",
        _RENDER,
        tunnel_ends.cleanup_faults,
        tunnel,
    ),
    rule(
        "KN-05",
        "masters have no configuration of the tunnel",
        "kube-apiserver exits because the egress selector file is missing, or dials a server that no longer exists.",
        _RENDER,
        tunnel_ends.master_faults,
        tunnel,
    ),
    rule(
        "KN-06",
        "the tunnel's certificates are valid for the whole installation",
        "They are valid for at most one day; if the installation takes longer, calls to webhooks fail.",
        "lower certificates.budgetHours, and finish the installation within a day",
        tunnel_ends.lifetime_faults,
        tunnel,
        severity=RuleSeverity.WARNING,
    ),
)
