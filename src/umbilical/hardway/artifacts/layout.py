"""Where artifacts lie: below the directory of a cluster, and on its nodes. Spelled here and nowhere else."""

from typing import Final

from umbilical.hardway.config.cluster import ClusterNode

# Below artifacts/.
TLS: Final = "tls"
"""<id>.crt, <id>.key, <id>.pub by the ids of the PKI table."""
BUNDLES: Final = "tls/bundles"
AUTH: Final = "auth"
"""<name>.kubeconfig, and the kubeadmin password."""
STATIC_PODS: Final = "static-pods"
"""<node id>/<file>: those that a kubelet finds at its start."""
LATE_STATIC_PODS: Final = "late-static-pods"
"""<node id>/<file>: those that a later stage moves into place."""
MANIFESTS: Final = "manifests"
"""Applied in the order of their file names."""
IGNITION: Final = "ignition"
"""<node id>.ign"""
INFRASTRUCTURE: Final = "infrastructure"
MACHINE_CONFIG: Final = "machine-config"
"""The input directory of the machine-config render commands, and the script that runs them."""

# On nodes.
NODE_MANIFESTS: Final = "/etc/kubernetes/manifests"
NODE_LATE_MANIFESTS: Final = "/etc/kubernetes/late-static-pods"
"""Not watched by the kubelet."""
NODE_SECRETS: Final = "/etc/kubernetes/bootstrap-secrets"
"""On the bootstrap node; in its static pods /etc/kubernetes/secrets."""
POD_SECRETS: Final = "/etc/kubernetes/secrets"
NODE_KUBECONFIGS: Final = "/etc/kubernetes/kubeconfigs"
NODE_CONFIGS: Final = "/etc/kubernetes/bootstrap-configs"
POD_CONFIGS: Final = "/etc/kubernetes/config"
MASTER_SECRETS: Final = "/etc/kubernetes/static-pod-resources"
"""On masters of the kubernetes profile, where the static pods are ours; in them also POD_SECRETS."""
BOOTSTRAP_KUBECONFIG: Final = "/etc/kubernetes/kubeconfig"
"""By which a kubelet asks for its first certificate."""
KUBELET_CLIENT_CA: Final = "/etc/kubernetes/kubelet-ca.crt"
KUBELET_CONFIG: Final = "/etc/kubernetes/kubelet.conf"
KUBELET_CONFIG_DROP_INS: Final = "/etc/kubernetes/kubelet.conf.d"
"""Whoever owns the machine may add to the kubelet's configuration here (`--config-dir`)."""
POD_BRIDGE: Final = "pods0"
ETCD_DATA: Final = "/var/lib/etcd"
PULL_SECRET: Final = "/var/lib/kubelet/config.json"
TUNNEL_PKI: Final = "/opt/openshift/tls/konnectivity"
"""Made on the bootstrap node itself, for one day."""


def static_pod(node: ClusterNode, file: str) -> str:
    return f"{STATIC_PODS}/{node.id}/{file}"


def late_static_pod(node: ClusterNode, file: str) -> str:
    return f"{LATE_STATIC_PODS}/{node.id}/{file}"


def kubeconfig(name: str) -> str:
    return f"{AUTH}/{name}.kubeconfig"


def ignition(node: ClusterNode) -> str:
    return f"{IGNITION}/{node.id}.ign"


def certificate(row_id: str) -> str:
    return f"{TLS}/{row_id}.crt"


def key(row_id: str) -> str:
    return f"{TLS}/{row_id}.key"


def bundle(name: str) -> str:
    return f"{BUNDLES}/{name}.crt"
