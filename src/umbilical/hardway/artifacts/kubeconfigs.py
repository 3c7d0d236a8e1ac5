"""The files below auth/: kubeconfigs, and the password of OpenShift's first administrator.

All kubeconfigs trust all three signers of kube-apiserver's serving certificates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.config.cluster import API_PORT, Cluster, ClusterProfile
from umbilical.hardway.explain.entry import Topic, TopicKind
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests.objects import kubeconfig
from umbilical.manifests.tree import SECRET_MODE, AssetTree
from umbilical.pki.certificate import read_certificates

STAGE: Final = 6
PASSWORD_FILE: Final = "kubeadmin-password"
LOCALHOST_URL: Final = f"https://localhost:{API_PORT}"
_ADMIN: Final = "admin-kubeconfig-client"


def _localhost(cluster: Cluster) -> str:
    return LOCALHOST_URL


def _inside(cluster: Cluster) -> str:
    return cluster.internal_api_url


def _outside(cluster: Cluster) -> str:
    return cluster.api_url


@dataclass(frozen=True)
class Kubeconfig:
    name: str
    """`auth/<name>.kubeconfig`."""
    pair: str
    """Row id of its client certificate."""
    server: Callable[[Cluster], str]
    what: str
    readers: str
    without: str
    installer: str
    user: str = ""
    """Name of the user and of the context; empty: the certificate's common name."""
    cluster: str = ""
    """Empty: the cluster's own name."""
    profiles: frozenset[ClusterProfile] = frozenset(ClusterProfile)


KUBECONFIGS: Final[tuple[Kubeconfig, ...]] = (
    Kubeconfig(
        "admin",
        _ADMIN,
        _outside,
        "The administrator's kubeconfig, for use from outside the cluster.",
        "the administrator; the pipeline",
        "kubectl connects to localhost:8080: connection refused.",
        "auth/kubeconfig.",
        user="admin",
    ),
    Kubeconfig(
        "kube-controller-manager",
        "kube-control-plane-kube-controller-manager-client",
        # The load balancer would choose any kube-apiserver, and on the bootstrap node none is ready at first.
        _localhost,
        "The kubeconfig of kube-controller-manager, for the kube-apiserver of its own node.",
        "kube-controller-manager (--kubeconfig, --authentication-kubeconfig, --authorization-kubeconfig)",
        "kube-controller-manager never becomes leader: no CSR is signed, no token is made.",
        "auth/kubeconfig-loopback is used instead on the bootstrap node.",
    ),
    Kubeconfig(
        "kube-scheduler",
        "kube-control-plane-kube-scheduler-client",
        _localhost,
        "The kubeconfig of kube-scheduler, for the kube-apiserver of its own node.",
        "kube-scheduler (--kubeconfig, --authentication-kubeconfig, --authorization-kubeconfig)",
        "Pods stay Pending, without an event.",
        "auth/kubeconfig-loopback is used instead on the bootstrap node.",
    ),
    Kubeconfig(
        "kubelet-bootstrap",
        "kubelet-client",
        _inside,
        "The kubeconfig with which every new node requests its first certificate.",
        "kubelets (--bootstrap-kubeconfig=/etc/kubernetes/kubeconfig)",
        "Nodes create no CSR and never join.",
        "auth/kubeconfig-kubelet, which nodes get from the machine-config server.",
    ),
    Kubeconfig(
        "localhost",
        _ADMIN,
        _localhost,
        "The administrator's kubeconfig for use on a control plane node.",
        "bootkube.sh and the version operator on the bootstrap node",
        "The version operator starts, but cannot use the API.",
        "auth/kubeconfig-loopback, which trusts only the localhost signer.",
        user="admin",
        cluster="localhost",
    ),
    Kubeconfig(
        "localhost-recovery",
        _ADMIN,
        _localhost,
        "The administrator's kubeconfig for repairs, for example of expired certificates; it needs no load balancer.",
        "administrators who repair a control plane node by hand",
        "Without the load balancer the cluster cannot be repaired from its nodes.",
        "The kube-apiserver operator writes localhost-recovery.kubeconfig.",
        user="admin",
        cluster="localhost-recovery",
    ),
    Kubeconfig(
        "lb-int",
        _ADMIN,
        _inside,
        "The administrator's kubeconfig with the load balancer's internal name api-int.DOMAIN.",
        "administrators in the machine network",
        "Nothing breaks if api.DOMAIN resolves there: use admin.kubeconfig.",
        "The kube-apiserver operator writes lb-int.kubeconfig.",
        user="admin",
        cluster="lb-int",
    ),
    Kubeconfig(
        "lb-ext",
        _ADMIN,
        _outside,
        "The administrator's kubeconfig with the load balancer's external name api.DOMAIN.",
        "administrators outside the machine network",
        "Nothing breaks: admin.kubeconfig has the same server.",
        "The kube-apiserver operator writes lb-ext.kubeconfig.",
        user="admin",
        cluster="lb-ext",
    ),
    Kubeconfig(
        "kube-proxy",
        "kube-proxy",
        _inside,
        "The kubeconfig of kube-proxy, the same on every node.",
        "kube-proxy (--kubeconfig)",
        "Cluster IPs do not work: dial tcp 172.30.0.1:443: i/o timeout.",
        "None: OpenShift's network operator implements Services.",
        profiles=frozenset({ClusterProfile.KUBERNETES}),
    ),
)


def cluster_kubeconfigs(cluster: Cluster) -> tuple[Kubeconfig, ...]:
    return tuple(one for one in KUBECONFIGS if cluster.profile in one.profiles)


def render_kubeconfigs(inputs: Inputs, made: AssetTree) -> AssetTree:
    tree = AssetTree()
    for one in cluster_kubeconfigs(inputs.cluster):
        tree.add_yaml(layout.kubeconfig(one.name), _rendered(one, inputs), SECRET_MODE)
    return tree


def _rendered(one: Kubeconfig, inputs: Inputs) -> dict[str, object]:
    pair = inputs.certificates[one.pair]
    user = one.user or read_certificates(pair.certificate)[0].common_name
    authority = inputs.certificates.bundle(Bundle.SERVER_CA)
    return kubeconfig(user, one.server(inputs.cluster), authority, pair, one.cluster or inputs.cluster.name)


def _topic(one: Kubeconfig) -> Topic:
    show = f"kubectl --kubeconfig=artifacts/{layout.kubeconfig(one.name)} auth whoami"
    name = f"{one.name}.kubeconfig"
    return Topic(TopicKind.FILE, name, STAGE, one.what, one.readers, one.without, show, one.installer)


def render_kubeadmin(inputs: Inputs, made: AssetTree) -> AssetTree:
    tree = AssetTree()
    if inputs.cluster.is_openshift:
        tree.add(f"{layout.AUTH}/{PASSWORD_FILE}", inputs.identity.kubeadmin_password.encode())
    return tree


TOPICS: Final[tuple[Topic, ...]] = (
    *map(_topic, KUBECONFIGS),
    Topic(
        TopicKind.FILE,
        PASSWORD_FILE,
        STAGE,
        "The password of the user kubeadmin, generated once: four groups of five characters without look-alikes.",
        "Users who log in before there is an identity provider; the cluster has only its bcrypt hash.",
        "oc login -u kubeadmin: Login failed (401 Unauthorized); the admin kubeconfig still works.",
        f'oc login -u kubeadmin -p "$(cat artifacts/{layout.AUTH}/{PASSWORD_FILE})"',
        "The same file, auth/kubeadmin-password, with the same format.",
    ),
)
