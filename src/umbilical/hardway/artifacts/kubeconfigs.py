"""The files below auth/: kubeconfigs, and the password of OpenShift's first administrator.

A kubeconfig says who asks the API, under which name of it. All trust all three signers of its servers.
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
    """The id of a certificate."""
    server: Callable[[Cluster], str]
    what: str
    readers: str
    without: str
    installer: str
    user: str = ""
    """Also the name of its context; empty: the common name of its certificate."""
    cluster: str = ""
    """Empty: the cluster's own name."""
    profiles: frozenset[ClusterProfile] = frozenset(ClusterProfile)


KUBECONFIGS: Final[tuple[Kubeconfig, ...]] = (
    Kubeconfig(
        "admin",
        _ADMIN,
        _outside,
        "The administrator's, from outside.",
        "whoever built the cluster",
        "kubectl asks localhost:8080, and is refused.",
        "auth/kubeconfig.",
        user="admin",
    ),
    Kubeconfig(
        "kube-controller-manager",
        "kube-control-plane-kube-controller-manager-client",
        # Through the load balancer each would reach any kube-apiserver, and on the bootstrap node none at first.
        _localhost,
        "kube-controller-manager's, for the kube-apiserver of its own node.",
        "kube-controller-manager (--kubeconfig, --authentication-kubeconfig, --authorization-kubeconfig)",
        "It never leads: no certificate is signed, no token made.",
        "auth/kubeconfig-loopback serves for this one on the bootstrap node.",
    ),
    Kubeconfig(
        "kube-scheduler",
        "kube-control-plane-kube-scheduler-client",
        _localhost,
        "kube-scheduler's, for the kube-apiserver of its own node.",
        "kube-scheduler (--kubeconfig, --authentication-kubeconfig, --authorization-kubeconfig)",
        "Pods stay Pending, without an event.",
        "auth/kubeconfig-loopback serves for this one on the bootstrap node.",
    ),
    Kubeconfig(
        "kubelet-bootstrap",
        "kubelet-client",
        _inside,
        "What every new node asks for its first certificate with.",
        "kubelets (--bootstrap-kubeconfig=/etc/kubernetes/kubeconfig)",
        "Nodes file no certificate request, and never appear.",
        "auth/kubeconfig-kubelet, which the machine-config server hands out.",
    ),
    Kubeconfig(
        "localhost",
        _ADMIN,
        _localhost,
        "The administrator's, on a control plane node itself.",
        "bootkube.sh and the version operator on the bootstrap node",
        "The version operator starts, and cannot ask anything.",
        "auth/kubeconfig-loopback, with the localhost signer alone.",
        user="admin",
        cluster="localhost",
    ),
    Kubeconfig(
        "localhost-recovery",
        _ADMIN,
        _localhost,
        "The administrator's for the day when certificates have expired: kube-apiserver alone is asked.",
        "whoever repairs a control plane node by hand",
        "A cluster whose load balancer is down cannot be repaired from its nodes.",
        "Written by the kube-apiserver operator as localhost-recovery.kubeconfig.",
        user="admin",
        cluster="localhost-recovery",
    ),
    Kubeconfig(
        "lb-int",
        _ADMIN,
        _inside,
        "The administrator's, through the internal name of the load balancer.",
        "whoever works on the machine network",
        "Work goes on through api.DOMAIN, if that name is known there.",
        "Written by the kube-apiserver operator as lb-int.kubeconfig.",
        user="admin",
        cluster="lb-int",
    ),
    Kubeconfig(
        "lb-ext",
        _ADMIN,
        _outside,
        "The administrator's, through the outer name of the load balancer.",
        "whoever works from outside",
        "Nothing: admin.kubeconfig asks the same.",
        "Written by the kube-apiserver operator as lb-ext.kubeconfig.",
        user="admin",
        cluster="lb-ext",
    ),
    Kubeconfig(
        "kube-proxy",
        "kube-proxy",
        _inside,
        "kube-proxy's, the same on every node.",
        "kube-proxy (--kubeconfig)",
        "Services have no address: dial tcp 172.30.0.1:443: i/o timeout.",
        "None: OpenShift's network operator implements services.",
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
        "The password of the user kubeadmin, drawn once: four groups of five characters, none of which look alike.",
        "Whoever logs in to the console before there is an identity provider; the cluster has only its bcrypt hash.",
        "oc login -u kubeadmin: Login failed (401 Unauthorized); the admin kubeconfig still works.",
        f'oc login -u kubeadmin -p "$(cat artifacts/{layout.AUTH}/{PASSWORD_FILE})"',
        "The same file, auth/kubeadmin-password, and the same form.",
    ),
)
