"""Rules about static pods: the version operator's, etcd's and kube-apiserver's words, kube-proxy, and the tunnel."""

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
_RENDER: Final = "it is rendered right: umbilical stage plan shows what was changed by hand"


def _cvo(facts: LintFacts) -> StaticPod:
    return program_pod(facts, CVO, facts.cluster.bootstrap)


def _cvo_image(facts: LintFacts) -> Iterator[str]:
    pod = _cvo(facts)
    image, release = pod.pod.container.get("image"), pod.flag("release-image")
    if image != release:
        yield f"{pod.path}: it runs {shown(image)} and is told to install {release}"
    if not _DIGEST.search(release):
        yield f"{pod.path}: --release-image={release} is not named by digest"
    asked = facts.cluster.release.image
    if _DIGEST.search(asked) and asked != release:
        yield f"{pod.path}: it installs {release}, and the configuration asks for {asked}"
    if not pod.is_late:
        yield f"{pod.path}: its kubelet starts it at once, before CRDs and FeatureGate are there"
    for path, one in facts.manifests:
        if one.get("kind") in WORKLOADS and dig(one, "metadata", "name") == CVO:
            yield f"{path}: it is a {one.get('kind')}, for which there is no node yet"


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
            yield f"{pod.path} is a {shown(pod.document.get('kind'))}: a kubelet that stands alone runs pods only"
        folder = layout.NODE_LATE_MANIFESTS if pod.is_late else layout.NODE_MANIFESTS
        if facts.ignition(node).file(f"{folder}/{pod.file}") is None:
            yield f"{layout.ignition(node)} does not write {folder}/{pod.file}"
    for path, one in facts.manifests:
        if one.get("kind") in WORKLOADS and _wants(_pod_spec(one), (node.id, node.name)):
            yield f"{path}: {one.get('kind')} {shown(dig(one, 'metadata', 'name'))} waits for the bootstrap node"


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
        "everything on the bootstrap node is a file",
        "its kubelet never registers, so no scheduler and no DaemonSet can bring anything there: it stays Pending",
        "make it a static pod of the bootstrap node, or let it run on masters",
        _bootstrap_workloads,
    ),
    rule(
        "CVO-01",
        "the version operator is a static pod that waits, of the very release that it installs",
        "another image has no manifests of the release; a tag differs from the Deployment's digest, so that the "
        "operator updates itself at once; too early it fails on kinds that do not exist yet",
        _RENDER,
        _cvo_image,
        profiles=OPENSHIFT,
    ),
    rule(
        "CVO-02",
        "the version operator serves no metrics (--listen=)",
        "it exits: with a listening address it wants a serving certificate, which nobody has made yet",
        _RENDER,
        _cvo_listen,
        profiles=OPENSHIFT,
    ),
    rule(
        "CVO-03",
        "the version operator knows the cluster's profile",
        "without CLUSTER_PROFILE it takes the default, and applies no manifest or the wrong ones",
        _RENDER,
        _cvo_profile,
        profiles=OPENSHIFT,
    ),
    rule(
        "CVO-04",
        "the version operator is privileged",
        "it reads files of the host that SELinux keeps from containers: permission denied on its kubeconfig",
        _RENDER,
        _cvo_privilege,
        profiles=OPENSHIFT,
    ),
    rule(
        "ETC-01",
        "the bootstrap member is called etcd-bootstrap",
        "the etcd operator searches this very name: any other member is never removed",
        _RENDER,
        _member,
        profiles=OPENSHIFT,
    ),
    rule(
        "ETC-02",
        "the bootstrap API stores below the masters' prefix",
        "OpenShift's API servers read /kubernetes.io; what lies under /registry is lost to them after the pivot",
        _RENDER,
        _prefix,
        profiles=OPENSHIFT,
    ),
    rule(
        "KP-01",
        "kube-proxy is kube-proxy, privileged, in the host's network",
        "hyperkube has no kube-proxy: `ID cannot be empty`; without privilege no rule is written",
        "take the release's image kube-proxy",
        service_proxies.pod_faults,
        kube_proxy,
    ),
    rule(
        "KP-02",
        "kube-proxy's user may read services",
        "`services is forbidden`: it runs, and no cluster IP works",
        "bind the kubeconfig's user to system:node-proxier",
        service_proxies.right_faults,
        kube_proxy,
    ),
    rule(
        "KP-03",
        "something implements services on every node that needs them",
        "operators and pods ask the API at the first service address, time out there and crash in a loop",
        "kubeProxy: on, or a network plugin that does it",
        service_proxies.coverage_faults,
    ),
    rule(
        "KP-04",
        "kube-proxy goes when the network operator has taken over",
        "two that implement services write rules against each other, for ever",
        _RENDER,
        service_proxies.removal_faults,
        kube_proxy,
        profiles=OPENSHIFT,
    ),
    rule(
        "KN-01",
        "server and kube-apiserver mean the same socket",
        "one directory of the host has two names in two pods; with the wrong one: `no such file or directory`",
        _RENDER,
        tunnel_ends.socket_faults,
        tunnel,
    ),
    rule(
        "KN-02",
        "the cluster is reached by gRPC through the tunnel, control plane and etcd directly",
        "with etcd in the tunnel the API never starts; with another protocol both ends only see violations",
        _RENDER,
        tunnel_ends.protocol_faults,
        tunnel,
    ),
    rule(
        "KN-03",
        "agents dial where the server listens, by the address in its certificate",
        "connection refused, or `x509: certificate is valid for ..., not ...`: no agent, and no way to pods",
        _RENDER,
        tunnel_ends.agent_faults,
        tunnel,
    ),
    rule(
        "KN-04",
        "the tunnel is removed, agents and server, once the bootstrap member has left",
        "agents dial a machine that is gone, for ever; removed too early, webhooks time out in the middle of it",
        _RENDER,
        tunnel_ends.cleanup_faults,
        tunnel,
    ),
    rule(
        "KN-05",
        "masters know nothing of the tunnel",
        "kube-apiserver exits at an egress file that is not there, or dials a server that is gone",
        _RENDER,
        tunnel_ends.master_faults,
        tunnel,
    ),
    rule(
        "KN-06",
        "the tunnel's certificates outlive the installation",
        "they are made for a day at most; an installation that takes longer loses its webhooks on the way",
        "lower certificates.budgetHours, or be done within the day",
        tunnel_ends.lifetime_faults,
        tunnel,
        severity=RuleSeverity.WARNING,
    ),
)
