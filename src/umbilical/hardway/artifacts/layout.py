"""Paths of artifacts in a cluster's directory and on its nodes. No other module spells them."""

from typing import Final

from umbilical.hardway.config.cluster import ClusterNode

# Below artifacts/.
TLS: Final = "tls"
"""<id>.crt, <id>.key, <id>.pub; the ids are those of the certificate table."""
BUNDLES: Final = "tls/bundles"
AUTH: Final = "auth"
"""<name>.kubeconfig and the kubeadmin password."""
STATIC_PODS: Final = "static-pods"
"""<node id>/<file>: static pods that a kubelet starts at once."""
LATE_STATIC_PODS: Final = "late-static-pods"
"""<node id>/<file>: static pods that a later stage moves into the kubelet's directory."""
MANIFESTS: Final = "manifests"
"""Files are applied in the order of their names."""
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
"""On the bootstrap node; its static pods mount it as POD_SECRETS."""
POD_SECRETS: Final = "/etc/kubernetes/secrets"
NODE_KUBECONFIGS: Final = "/etc/kubernetes/kubeconfigs"
NODE_CONFIGS: Final = "/etc/kubernetes/bootstrap-configs"
POD_CONFIGS: Final = "/etc/kubernetes/config"
MASTER_SECRETS: Final = "/etc/kubernetes/static-pod-resources"
"""On masters of the kubernetes profile; their static pods mount it as POD_SECRETS."""
BOOTSTRAP_KUBECONFIG: Final = "/etc/kubernetes/kubeconfig"
"""The kubeconfig with which a kubelet requests its first certificate."""
KUBELET_CLIENT_CA: Final = "/etc/kubernetes/kubelet-ca.crt"
KUBELET_CONFIG: Final = "/etc/kubernetes/kubelet.conf"
KUBELET_CONFIG_DROP_INS: Final = "/etc/kubernetes/kubelet.conf.d"
"""Drop-ins of the machine's owner for the kubelet's configuration (`--config-dir`)."""
POD_BRIDGE: Final = "pods0"
ETCD_DATA: Final = "/var/lib/etcd"
PULL_SECRET: Final = "/var/lib/kubelet/config.json"
TUNNEL_PKI: Final = "/opt/openshift/tls/konnectivity"
"""The bootstrap node makes these certificates itself, for one day."""


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
