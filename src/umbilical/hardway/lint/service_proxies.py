"""Faults of cluster IPs: kube-proxy's pod, rights, coverage of nodes and removal, or the network plugin."""

from collections.abc import Iterator
from typing import Final

from umbilical.bootstrap.verify.documents import dig
from umbilical.checks.check import Doubt
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.static_pods.pods import CONVERGENCE_STAGE, REMOVALS_PATH, RemovalStep, read_removals
from umbilical.hardway.config.cluster import Switch
from umbilical.hardway.lint.applied import references
from umbilical.hardway.lint.clients import ClientIdentity, identity, read, roles_of
from umbilical.hardway.lint.facts import LintFacts, Unreadable
from umbilical.hardway.lint.pods import StaticPod, program_pods, static_pods
from umbilical.pki.certificate import read_certificates
from umbilical.pki.pem import BundleError

KUBE_PROXY: Final = "kube-proxy"
ROLE: Final = "system:node-proxier"
BUILT_IN_USER: Final = "system:kube-proxy"
"""kube-apiserver itself binds this user to the role."""
PLUGINS_WITH_SERVICES: Final = ("OVNKubernetes", "OpenShiftSDN")


def pod_faults(facts: LintFacts) -> Iterator[str]:
    others = {pod.pod.container.get("image") for pod in static_pods(facts) if not _is_proxy(pod)}
    is_openshift = facts.cluster.is_openshift
    wanted = dict(references(facts)).get(KUBE_PROXY) if is_openshift else None
    for pod in program_pods(facts, KUBE_PROXY):
        image = pod.pod.container.get("image")
        if is_openshift and image != wanted:
            yield f"{pod.path}: its image is {image}, not the release's {KUBE_PROXY}"
        if image in others:
            yield f"{pod.path}: its image {image} belongs to another program and does not run {KUBE_PROXY}"
        if dig(pod.pod.container, "securityContext", "privileged") is not True:
            yield f"{pod.path}: it is not privileged, so it cannot write rules"
        if pod.spec.get("hostNetwork") is not True:
            yield f"{pod.path}: it does not use the host network, so its rules have no effect"


def right_faults(facts: LintFacts) -> Iterator[str]:
    for pod in program_pods(facts, KUBE_PROXY):
        who = _user(facts, pod)
        if not (who.user == BUILT_IN_USER or who.is_cluster_admin or ROLE in roles_of(facts, who)):
            yield f"{pod.path}: no ClusterRoleBinding binds the user {who.user} of its kubeconfig to {ROLE}"


def coverage_faults(facts: LintFacts) -> Iterator[str]:
    if facts.cluster.is_openshift and not facts.cluster.has_kube_proxy:
        yield from _plugin_faults(facts)
        yield from _untried(facts)
        return
    needing = facts.cluster.masters if facts.cluster.is_openshift else facts.cluster.members
    for node in needing:
        if not any(not pod.is_late for pod in program_pods(facts, KUBE_PROXY, node)):
            yield f"{node.id} has no {KUBE_PROXY} that starts with its kubelet, and nothing else implements Services"


def removal_faults(facts: LintFacts) -> Iterator[str]:
    step = removal(facts, KUBE_PROXY)
    if step is None:
        yield f"{REMOVALS_PATH} has no step that removes {KUBE_PROXY}"
        return
    if step.stage < CONVERGENCE_STAGE or not step.after:
        yield f"{KUBE_PROXY} is removed in stage {step.stage}, before the network operator is Available"
    cleaning = {node for node, words in step.commands if words[-1:] == ("--cleanup",)}
    for pod in program_pods(facts, KUBE_PROXY):
        if (pod.node.id, f"{layout.NODE_MANIFESTS}/{pod.file}") not in step.files:
            yield f"no step removes {pod.file} from {pod.node.id}"
        if pod.node.id not in cleaning:
            yield f"no step runs {KUBE_PROXY} --cleanup on {pod.node.id}, so its rules stay"


def removal(facts: LintFacts, what: str) -> RemovalStep | None:
    try:
        return next((step for step in read_removals(facts.content(REMOVALS_PATH)) if step.what == what), None)
    except ValueError as error:
        raise Unreadable(f"{REMOVALS_PATH}: {error}") from None


def _is_proxy(pod: StaticPod) -> bool:
    return bool(pod.pod.container.get("name") == KUBE_PROXY)


def _plugin_faults(facts: LintFacts) -> Iterator[str]:
    networks = [one for _, one in facts.manifests if one.get("kind") == "Network"]
    types = {dig(one, "spec", "networkType") or dig(one, "spec", "defaultNetwork", "type") for one in networks}
    if not types or not types <= set(PLUGINS_WITH_SERVICES):
        shown = ", ".join(sorted(map(str, types))) or "none"
        yield f"there is no {KUBE_PROXY}, and the network plugin ({shown}) is not known to implement Services"


def _untried(facts: LintFacts) -> Iterator[Doubt]:
    """Warn as long as cluster.yaml leaves open whether operators start without cluster IPs."""
    if facts.cluster.kube_proxy is Switch.AUTO:
        yield Doubt(
            "kubeProxy: auto leaves kube-proxy out; that operators start without cluster IPs until the network plugin "
            "runs is known from their source only, and was not tried on a cluster"
        )


def _user(facts: LintFacts, pod: StaticPod) -> ClientIdentity:
    """Return the user of the pod's kubeconfig on the node."""
    path = pod.on_host(pod.flag("kubeconfig"))
    content = facts.node_file(pod.node, path)
    found = [asset.path for asset in facts.below(layout.AUTH) if asset.content == content]
    if not found:
        raise Unreadable(f"{layout.ignition(pod.node)}: {path} is not one of the kubeconfigs in {layout.AUTH}/")
    try:
        return identity(read_certificates(read(facts, found[0]).pair.certificate)[0])
    except BundleError as error:
        raise Unreadable(f"{found[0]}: {error}") from None
