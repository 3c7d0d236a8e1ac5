"""Explanations of static pods: one topic for every file, and one for every flag from the tables of the programs."""

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
_ON_NODE: Final = "umbilical stage logs NODE {}"


def _file(name: str, what: str, readers: str, without: str, by_hand: str, installer: str) -> Topic:
    return Topic(TopicKind.FILE, name, STAGE, what, readers, without, by_hand, installer)


def _shown(program: str) -> str:
    return _ON_NODE.replace("{}", program)


FILES: Final[tuple[Topic, ...]] = (
    _file(
        "etcd-bootstrap.yaml",
        "The first etcd member, named etcd-bootstrap. It is the only one until masters join.",
        _KUBELET,
        "kube-apiserver-bootstrap logs `connection refused` for port 2379, and never becomes ready.",
        "etcdctl --endpoints=https://BOOTSTRAP:2379 --cacert=artifacts/tls/bundles/etcd-ca-bundle.crt"
        " --cert=artifacts/tls/etcd-client.crt --key=artifacts/tls/etcd-client.key endpoint health",
        ETCD.installer,
    ),
    _file(
        "kube-apiserver-bootstrap.yaml",
        "The API server before there are masters. All first objects of the cluster are created through it.",
        f"{_KUBELET}; the load balancer checks its /readyz",
        "Nothing can be applied, and no node can request a certificate.",
        "curl --cacert artifacts/tls/bundles/kube-apiserver-complete-server-ca-bundle.crt https://BOOTSTRAP:6443/readyz",
        KUBE_APISERVER.installer,
    ),
    _file(
        "kube-controller-manager-bootstrap.yaml",
        "The controllers of the bootstrap node: for service accounts and their tokens, and for kubelets' certificates."
        " In OpenShift the pod has a second container, cluster-policy-controller.",
        _KUBELET,
        "Approved CSRs get no certificate; namespaces have no service accounts, and in OpenShift no UID range.",
        "kubectl --kubeconfig=artifacts/auth/admin.kubeconfig -n kube-system get lease kube-controller-manager -o yaml",
        KUBE_CONTROLLER_MANAGER.installer,
    ),
    _file(
        "kube-scheduler-bootstrap.yaml",
        "Assigns pods to nodes until the masters' schedulers run.",
        _KUBELET,
        "Operators' pods stay Pending, without an event.",
        "kubectl --kubeconfig=artifacts/auth/admin.kubeconfig -n kube-system get lease kube-scheduler -o yaml",
        KUBE_SCHEDULER.installer,
    ),
    _file(
        "konnectivity-server-pod.yaml",
        "The tunnel's server: agents in the cluster connect to it, and kube-apiserver dials pods through them.",
        f"{_KUBELET}; the pod starts when the node has made the certificates that it mounts",
        "Calls from the bootstrap node to webhooks in pods time out: context deadline exceeded.",
        f"on the bootstrap node: {_shown('konnectivity-server')}; curl localhost:2041/healthz",
        KONNECTIVITY_SERVER.installer,
    ),
    _file(
        "egress-selector-config.yaml",
        "Configures which connections of kube-apiserver use the tunnel: only those into the cluster.",
        "kube-apiserver on the bootstrap node (--egress-selector-config-file)",
        "kube-apiserver exits if the file is missing; if etcd is in the tunnel, it never starts.",
        f"cat artifacts/{layout.STATIC_PODS}/bootstrap/config/egress-selector-config.yaml",
        "bootkube.sh copies the same file to the rendered configuration.",
    ),
    _file(
        "cluster-policy-controller-config.yaml",
        "Port, certificate and kubeconfig of cluster-policy-controller.",
        "cluster-policy-controller on the bootstrap node (--config)",
        "The container exits, namespaces have no openshift.io/sa.scc.uid-range, and pods are rejected later.",
        "kubectl get namespace default -o jsonpath='{.metadata.annotations}'",
        "the controller-manager operator renders it from its defaults",
    ),
    _file(
        "cvo-bootstrap.yaml",
        "The version operator, which installs all other operators. bootkube.sh moves the file into the kubelet's"
        " directory when every CRD is established and the FeatureGate has a status for this release.",
        "bootkube.sh; then the kubelet of the bootstrap node",
        "No operator is installed. If it starts too early, it shuts down and restarts without end.",
        f"on the bootstrap node: {_shown('cluster-version-operator')}",
        CLUSTER_VERSION_OPERATOR.installer,
    ),
    _file(
        "etcd.yaml",
        "The etcd member of a master. It joins as a learner and becomes a voter when it has caught up.",
        f"{_KUBELET}; {_LATE}",
        "The bootstrap node cannot be removed, because its member is the only one.",
        "etcdctl member list -w table",
        "the etcd operator's installer pods write it",
    ),
    _file(
        "kube-apiserver.yaml",
        "The API server of a master. It uses the etcd of the same node, and has no flag for the tunnel.",
        f"{_KUBELET}; {_LATE}, after etcd has become a voter: a learner serves no reads",
        "After the pivot the load balancer has no server.",
        "curl --cacert artifacts/tls/bundles/kube-apiserver-complete-server-ca-bundle.crt https://MASTER:6443/readyz",
        "the kube-apiserver operator's installer pods write it",
    ),
    _file(
        "kube-controller-manager.yaml",
        "The controllers of a master; only the leader is active, the others wait for its lease.",
        f"{_KUBELET}; {_LATE}",
        "After the pivot no CSR is signed, and no object is reconciled.",
        "kubectl -n kube-system get lease kube-controller-manager -o jsonpath='{.spec.holderIdentity}'",
        "the controller-manager operator's installer pods write it",
    ),
    _file(
        "kube-scheduler.yaml",
        "The scheduler of a master; only the leader is active, the others wait for its lease.",
        f"{_KUBELET}; {_LATE}",
        "After the pivot new pods stay Pending.",
        "kubectl -n kube-system get lease kube-scheduler -o jsonpath='{.spec.holderIdentity}'",
        "the scheduler operator's installer pods write it",
    ),
    _file(
        "kube-proxy.yaml",
        "Implements cluster IPs on a node. It stays in the kubernetes profile; in OpenShift, if turned on, it is"
        " removed when the network operator is Available.",
        _KUBELET,
        "dial tcp 172.30.0.1:443: i/o timeout, and pods that use the API are in CrashLoopBackOff. In OpenShift this"
        " can only happen before OVN-Kubernetes runs, to operators that do not read apiserver-url.env; in that case set"
        " kubeProxy: on.",
        "on the node: nft list ruleset | grep 172.30.0.1 (iptables-save in iptables mode)",
        KUBE_PROXY.installer,
    ),
    _file(
        "removals.json",
        "Temporary components and how they are removed: the tunnel at the pivot, and in OpenShift kube-proxy when the"
        " network operator is Available.",
        "stages 13 and 16; stage lint (KN-04, KP-04)",
        "Agents dial a machine that no longer exists; kube-proxy and the network plugin overwrite each other's rules.",
        f"jq . artifacts/{layout.STATIC_PODS}/removals.json",
        "bootkube.sh deletes the tunnel when it ends; there is no kube-proxy to remove.",
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
        what=_joined_texts(uses, [use.row.why for use in uses]),
        readers=", ".join(programs),
        without=_joined_texts(uses, [use.row.without for use in uses]),
        by_hand=f"grep -rh -A1 -e '{name}' {_FOLDERS}",
        installer="; ".join(installers),
    )


def _joined_texts(uses: Sequence[_Use], texts: Sequence[str]) -> str:
    """Return the text once if it is the same for all programs, else one text per program."""
    if len(set(texts)) == 1:
        return texts[0]
    by_program: dict[str, list[str]] = {}
    for use, text in zip(uses, texts, strict=True):
        known = by_program.setdefault(use.program.name, [])
        known += [] if text in known else [text]
    lines = {name: "; ".join(of) for name, of in by_program.items()}
    return "; ".join(lines.values()) if len(lines) == 1 else ". ".join(f"{name}: {of}" for name, of in lines.items())


TOPICS: Final[tuple[Topic, ...]] = (*FILES, *_flag_topics(PROGRAMS))
