"""The kubelet of a node: its configuration, its flags with their reasons, its unit.

On the bootstrap node it stands alone: nobody to register with, nobody to ask whether a caller may. On members it asks
for its certificates itself.
"""

from typing import Any, Final

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Cluster, Node, Role
from umbilical.assets.hardway.nodes.parts import Parts, Unit
from umbilical.assets.hardway.topic import Flag
from umbilical.assets.tree import PUBLIC_MODE, yaml_bytes

UNIT: Final = "kubelet.service"
OWN_KUBECONFIG: Final = "/var/lib/kubelet/kubeconfig"
VOLUME_PLUGINS: Final = "/etc/kubernetes/kubelet-plugins/volume/exec"
"""The default lies below /usr, which RHCOS mounts read-only."""
CRIO_SOCKET: Final = "/var/run/crio/crio.sock"
CONTAINERD_SOCKET: Final = "/run/containerd/containerd.sock"
CLUSTER_DOMAIN: Final = "cluster.local"
CONTROL_PLANE_ROLE: Final = "node-role.kubernetes.io/control-plane"
MASTER_ROLE: Final = "node-role.kubernetes.io/master"
WORKER_ROLE: Final = "node-role.kubernetes.io/worker"


def add_kubelet(parts: Parts, cluster: Cluster, node: Node) -> None:
    parts.files.add(layout.KUBELET_CONFIG, yaml_bytes(configuration(cluster, node)), PUBLIC_MODE)
    # A kubelet stops at its start where the directory of drop-ins is missing.
    parts.make_directories({layout.KUBELET_CONFIG_DROP_INS: 0o755, layout.NODE_MANIFESTS: 0o755})
    parts.units.append(Unit(UNIT, unit(cluster, node)))


def configuration(cluster: Cluster, node: Node) -> dict[str, Any]:
    socket = CRIO_SOCKET if cluster.is_openshift else CONTAINERD_SOCKET
    common = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{socket}",
        "cgroupDriver": "systemd",
        "staticPodPath": layout.NODE_MANIFESTS,
        "clusterDomain": CLUSTER_DOMAIN,
        # One slow image must not hold up the other static pods.
        "serializeImagePulls": False,
        "runtimeRequestTimeout": "10m",
        "volumePluginDir": VOLUME_PLUGINS,
    }
    return {**common, **(_standalone() if node.role is Role.BOOTSTRAP else _registered(cluster))}


def _standalone() -> dict[str, Any]:
    """By default a kubelet with a configuration file asks the API; without one it ends: no client provided."""
    return {
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
    }


def _registered(cluster: Cluster) -> dict[str, Any]:
    return {
        "clusterDNS": [str(cluster.dns_ip)],
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": layout.KUBELET_CLIENT_CA},
        },
        "authorization": {"mode": "Webhook"},
        "rotateCertificates": True,
        "serverTLSBootstrap": True,
    }


def flags(cluster: Cluster, node: Node) -> list[Flag]:
    """A role of OpenShift's has one kubelet unit for all its nodes, so what is a node's own is not in it."""
    found = [
        Flag("config", layout.KUBELET_CONFIG, "Everything that a file can say stands in this one."),
        Flag(
            "config-dir",
            layout.KUBELET_CONFIG_DROP_INS,
            "Whoever owns the machine adds to the configuration here, and need not touch ours.",
        ),
    ]
    if node.role is Role.BOOTSTRAP or not cluster.is_openshift:
        found += _own_flags(node)
    if node.role is not Role.BOOTSTRAP:
        found += _joining_flags()
        found += _role_flags(cluster, node)
    return [*found, Flag("v", "2", "Enough to see from the journal why a pod does not start.")]


def _own_flags(node: Node) -> list[Flag]:
    return [
        Flag(
            "hostname-override",
            node.name,
            "The node's name in the API; certificates, CSR policy and load balancer know it by this one.",
            "the kubelet takes what `hostname` says, which may be the short name, and its CSRs are refused",
        ),
        Flag(
            "node-ip",
            str(node.address),
            "Under this address other machines reach the kubelet and host-network pods.",
            "with two cards or with VIPs on the machine the kubelet may report another one",
        ),
    ]


def _joining_flags() -> list[Flag]:
    return [
        Flag(
            "bootstrap-kubeconfig",
            layout.BOOTSTRAP_KUBECONFIG,
            "With this identity the kubelet may ask for a certificate of its own, and nothing else.",
            "no CSR ever appears and the node never joins",
        ),
        Flag(
            "kubeconfig",
            OWN_KUBECONFIG,
            "Here the kubelet writes the kubeconfig with the certificate it was given.",
            "the kubelet runs standalone, as on the bootstrap node",
        ),
    ]


def _role_flags(cluster: Cluster, node: Node) -> list[Flag]:
    found: list[Flag] = []
    if cluster.is_openshift:
        # Upstream refuses these labels from a kubelet; OpenShift's has a patch that lets them pass.
        roles = f"{CONTROL_PLANE_ROLE}=,{MASTER_ROLE}=" if node.role is Role.MASTER else f"{WORKER_ROLE}="
        found.append(
            Flag(
                "node-labels",
                roles,
                "Operators choose their nodes by these roles.",
                "daemon sets and installer pods of the control plane find no node",
            )
        )
    if taint := taint_of(cluster, node):
        found.append(
            Flag(
                "register-with-taints",
                f"{taint}=:NoSchedule",
                "Workloads keep off the control plane from the first moment.",
                "pods land on a master before anybody could taint it",
            )
        )
    return found


def taint_of(cluster: Cluster, node: Node) -> str | None:
    """Masters are for themselves, unless there is nobody else."""
    if node.role is not Role.MASTER or not cluster.workers:
        return None
    return MASTER_ROLE if cluster.is_openshift else CONTROL_PLANE_ROLE


def unit(cluster: Cluster, node: Node) -> str:
    runtime = "crio.service" if cluster.is_openshift else "containerd.service"
    program = "/usr/bin/kubelet" if cluster.is_openshift else "/usr/local/bin/kubelet"
    command = " \\\n    ".join([program, *map(str, flags(cluster, node))])
    return (
        "[Unit]\n"
        "Description=Kubernetes kubelet\n"
        f"Wants=network-online.target {runtime}\n"
        f"After=network-online.target {runtime}\n"
        "\n"
        "[Service]\n"
        "Type=notify\n"
        f"ExecStart={command}\n"
        "Restart=always\n"
        "RestartSec=10\n"
        "\n"
        "[Install]\n"
        "WantedBy=multi-user.target\n"
    )
