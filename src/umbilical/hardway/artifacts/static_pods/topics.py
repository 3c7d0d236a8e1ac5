"""Static pods in words: one topic for every file, and one for every flag, made from the tables of the programs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.static_pods.cluster_version_operator import CLUSTER_VERSION_OPERATOR
from umbilical.hardway.artifacts.static_pods.etcd import ETCD
from umbilical.hardway.artifacts.static_pods.kube_apiserver import KUBE_APISERVER
from umbilical.hardway.artifacts.static_pods.kube_controller_manager import (
    CLUSTER_POLICY_CONTROLLER,
    KUBE_CONTROLLER_MANAGER,
    KUBE_SCHEDULER,
)
from umbilical.hardway.artifacts.static_pods.kube_proxy import KUBE_PROXY
from umbilical.hardway.artifacts.static_pods.placement import FlagRow, ProgramFlags
from umbilical.hardway.artifacts.tunnel import KONNECTIVITY_SERVER
from umbilical.hardway.explain.entry import Topic, TopicKind

STAGE: Final = 7
PROGRAMS: Final[tuple[ProgramFlags, ...]] = (
    ETCD,
    KUBE_APISERVER,
    KUBE_CONTROLLER_MANAGER,
    CLUSTER_POLICY_CONTROLLER,
    KUBE_SCHEDULER,
    CLUSTER_VERSION_OPERATOR,
    KONNECTIVITY_SERVER,
    KUBE_PROXY,
)
_FOLDERS: Final = f"artifacts/{layout.STATIC_PODS} artifacts/{layout.LATE_STATIC_PODS}"
_KUBELET: Final = "the kubelet of its node"
_LATE: Final = "stage 12 moves it from late-static-pods into the directory that the kubelet watches"
_ON_NODE: Final = "crictl ps --name {}; crictl logs $(crictl ps -q --name {})"


def _file(name: str, what: str, readers: str, without: str, by_hand: str, installer: str) -> Topic:
    return Topic(TopicKind.FILE, name, STAGE, what, readers, without, by_hand, installer)


def _shown(program: str) -> str:
    return _ON_NODE.replace("{}", program)


FILES: Final[tuple[Topic, ...]] = (
    _file(
        "etcd-bootstrap.yaml",
        "The first member of etcd, alone until masters join it. It is called etcd-bootstrap.",
        _KUBELET,
        "kube-apiserver-bootstrap says `connection refused` on 2379, and never gets ready.",
        "etcdctl --endpoints=https://BOOTSTRAP:2379 --cacert=artifacts/tls/bundles/etcd-ca-bundle.crt"
        " --cert=artifacts/tls/etcd-client.crt --key=artifacts/tls/etcd-client.key endpoint health",
        ETCD.installer,
    ),
    _file(
        "kube-apiserver-bootstrap.yaml",
        "The API before there are masters. All that a cluster needs is first written through it.",
        f"{_KUBELET}; the load balancer asks its /readyz",
        "Nothing can be applied, and no node can ask for a certificate.",
        "curl --cacert artifacts/tls/bundles/kube-apiserver-complete-server-ca-bundle.crt https://BOOTSTRAP:6443/readyz",
        KUBE_APISERVER.installer,
    ),
    _file(
        "kube-controller-manager-bootstrap.yaml",
        "Controllers of the bootstrap node: service accounts and their tokens, and certificates for kubelets. On"
        " OpenShift the pod has a second container, cluster-policy-controller.",
        _KUBELET,
        "Approved requests stay without a certificate; namespaces have no accounts, on OpenShift no user ids.",
        "kubectl --kubeconfig=artifacts/auth/admin.kubeconfig -n kube-system get lease kube-controller-manager -o yaml",
        KUBE_CONTROLLER_MANAGER.installer,
    ),
    _file(
        "kube-scheduler-bootstrap.yaml",
        "Finds nodes for pods, before the masters' schedulers do.",
        _KUBELET,
        "Operators stay Pending, with no event that says why.",
        "kubectl --kubeconfig=artifacts/auth/admin.kubeconfig -n kube-system get lease kube-scheduler -o yaml",
        KUBE_SCHEDULER.installer,
    ),
    _file(
        "konnectivity-server-pod.yaml",
        "The tunnel's server: agents in the cluster hold connections to it, kube-apiserver dials pods through them.",
        f"{_KUBELET}; it waits until the node has made the certificates that the pod mounts",
        "Webhooks in pods time out on the bootstrap node: context deadline exceeded.",
        f"on the bootstrap node: {_shown('konnectivity-server')}; curl localhost:2041/healthz",
        KONNECTIVITY_SERVER.installer,
    ),
    _file(
        "egress-selector-config.yaml",
        "Tells kube-apiserver which connections go through the tunnel: those into the cluster, and no others.",
        "kube-apiserver on the bootstrap node (--egress-selector-config-file)",
        "kube-apiserver exits when the file is not there; with etcd in the tunnel it waits for ever.",
        f"cat artifacts/{layout.STATIC_PODS}/bootstrap/config/egress-selector-config.yaml",
        "bootkube.sh copies the same file beside the rendered configuration.",
    ),
    _file(
        "cluster-policy-controller-config.yaml",
        "Port, certificate and kubeconfig of cluster-policy-controller.",
        "cluster-policy-controller on the bootstrap node (--config)",
        "The container exits, namespaces have no openshift.io/sa.scc.uid-range, and pods are not admitted later.",
        "kubectl get namespace default -o jsonpath='{.metadata.annotations}'",
        "rendered by the controller-manager operator from its defaults",
    ),
    _file(
        "cvo-bootstrap.yaml",
        "The version operator, which installs every other operator. It is held back: bootkube.sh moves it into place"
        " when every CRD is established and the FeatureGate has a status for this release.",
        "bootkube.sh; then the kubelet of the bootstrap node",
        "Nothing of OpenShift appears. Started too early, it asks itself to shut down and begins anew, for ever.",
        f"on the bootstrap node: {_shown('cluster-version-operator')}",
        CLUSTER_VERSION_OPERATOR.installer,
    ),
    _file(
        "etcd.yaml",
        "A master's member of etcd. It joins as a learner, and votes once it has caught up.",
        f"{_KUBELET}; {_LATE}",
        "The bootstrap node cannot go: its member would be the only one.",
        "etcdctl member list -w table",
        "the etcd operator's installer pods write it",
    ),
    _file(
        "kube-apiserver.yaml",
        "A master's API, on the master's own etcd, without the tunnel's flag.",
        f"{_KUBELET}; {_LATE}, after etcd has a vote: a learner serves no reads",
        "The load balancer has nobody to send requests to after the pivot.",
        "curl --cacert artifacts/tls/bundles/kube-apiserver-complete-server-ca-bundle.crt https://MASTER:6443/readyz",
        "the kube-apiserver operator's installer pods write it",
    ),
    _file(
        "kube-controller-manager.yaml",
        "A master's controllers: one of all works, the others wait for its lease.",
        f"{_KUBELET}; {_LATE}",
        "After the pivot nobody signs, and nothing is reconciled.",
        "kubectl -n kube-system get lease kube-controller-manager -o jsonpath='{.spec.holderIdentity}'",
        "the controller-manager operator's installer pods write it",
    ),
    _file(
        "kube-scheduler.yaml",
        "A master's scheduler: one of all works, the others wait for its lease.",
        f"{_KUBELET}; {_LATE}",
        "After the pivot new pods stay Pending.",
        "kubectl -n kube-system get lease kube-scheduler -o jsonpath='{.spec.holderIdentity}'",
        "the scheduler operator's installer pods write it",
    ),
    _file(
        "kube-proxy.yaml",
        "Makes cluster IPs work on a node. In the kubernetes profile for good; on OpenShift, if switched on, until"
        " the network operator is there.",
        _KUBELET,
        "dial tcp 172.30.0.1:443: i/o timeout, and operators crash in a loop.",
        "on the node: nft list ruleset | grep 172.30.0.1 (iptables-save in iptables mode)",
        KUBE_PROXY.installer,
    ),
    _file(
        "removals.json",
        "What is there for a while only, and how it goes: the tunnel at the pivot, kube-proxy of OpenShift when its"
        " network operator has taken over.",
        "stages 13 and 16; stage lint (KN-04, KP-04)",
        "Agents dial a machine that is gone; two programs write rules for services against each other.",
        f"jq . artifacts/{layout.STATIC_PODS}/removals.json",
        "bootkube.sh deletes the tunnel at its end; there is no kube-proxy to remove.",
    ),
)


@dataclass(frozen=True)
class _Use:
    program: ProgramFlags
    row: FlagRow


def _flag_topics(programs: Sequence[ProgramFlags]) -> Iterable[Topic]:
    uses: dict[str, list[_Use]] = {}
    for program in programs:
        for row in program.flags:
            uses.setdefault(f"--{row.name}", []).append(_Use(program, row))
        for row in program.environment:
            uses.setdefault(row.name, []).append(_Use(program, row))
    return (_flag_topic(name, of) for name, of in uses.items())


def _flag_topic(name: str, uses: Sequence[_Use]) -> Topic:
    programs = list(dict.fromkeys(use.program.name for use in uses))
    installers = dict.fromkeys(f"{use.program.name}: {use.program.installer}" for use in uses)
    return Topic(
        TopicKind.FLAG,
        name,
        STAGE,
        what=_told(uses, [use.row.why for use in uses]),
        readers=", ".join(programs),
        without=_told(uses, [use.row.without for use in uses]),
        by_hand=f"grep -rh -A1 -e '{name}' {_FOLDERS}",
        installer="; ".join(installers),
    )


def _told(uses: Sequence[_Use], texts: Sequence[str]) -> str:
    """Say it once where all say the same, else for each program."""
    if len(set(texts)) == 1:
        return texts[0]
    by_program: dict[str, list[str]] = {}
    for use, text in zip(uses, texts, strict=True):
        known = by_program.setdefault(use.program.name, [])
        known += [] if text in known else [text]
    lines = {name: "; ".join(of) for name, of in by_program.items()}
    return "; ".join(lines.values()) if len(lines) == 1 else ". ".join(f"{name}: {of}" for name, of in lines.items())


TOPICS: Final[tuple[Topic, ...]] = (*FILES, *_flag_topics(PROGRAMS))
