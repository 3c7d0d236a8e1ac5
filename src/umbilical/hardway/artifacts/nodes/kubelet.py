"""The kubelet of a node: its configuration, its flags with their reasons, its unit.

On the bootstrap node it stands alone: nobody to register with, nobody to ask whether a caller may. On members it asks
for its certificates itself.
"""

from typing import Any, Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.nodes.merging import NodeParts, SystemdUnit
from umbilical.hardway.artifacts.static_pods.placement import VERBOSITY, FlagRow, PodPlacement, ProgramFlags
from umbilical.hardway.config.cluster import Cluster, ClusterNode, NodeRole
from umbilical.manifests.tree import PUBLIC_MODE, yaml_bytes

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


def add_kubelet(parts: NodeParts, placement: PodPlacement) -> None:
    parts.files.add(layout.KUBELET_CONFIG, yaml_bytes(configuration(placement)), PUBLIC_MODE)
    # A kubelet stops at its start where the directory of drop-ins is missing.
    parts.directories.update({layout.KUBELET_CONFIG_DROP_INS: 0o755, layout.NODE_MANIFESTS: 0o755})
    parts.units.append(SystemdUnit(UNIT, unit(placement)))


def configuration(placement: PodPlacement) -> dict[str, Any]:
    socket = CRIO_SOCKET if placement.is_openshift else CONTAINERD_SOCKET
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
    return {**common, **(_standalone() if placement.is_bootstrap else _registered(placement.cluster))}


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


def _is_own(placement: PodPlacement) -> bool:
    """A role of OpenShift's has one unit for all its nodes, so what is a node's own is not in it."""
    return placement.is_bootstrap or not placement.is_openshift


def _joins(placement: PodPlacement) -> bool:
    return not placement.is_bootstrap


def _roles(placement: PodPlacement) -> str:
    is_master = placement.node.role is NodeRole.MASTER
    return f"{CONTROL_PLANE_ROLE}=,{MASTER_ROLE}=" if is_master else f"{WORKER_ROLE}="


KUBELET: Final = ProgramFlags(
    "kubelet",
    (
        FlagRow(
            "config",
            layout.KUBELET_CONFIG,
            "everything that a file can say stands in this one",
            "flags would have to say it, and most of those are deprecated",
        ),
        FlagRow(
            "config-dir",
            layout.KUBELET_CONFIG_DROP_INS,
            "whoever owns the machine adds to the configuration here, and need not touch ours",
            "a lab could not tell the kubelet about its control groups",
        ),
        FlagRow(
            "hostname-override",
            lambda placement: placement.node.name,
            "the node's name in the API; certificates, CSR policy and load balancer know it by this one",
            "the kubelet takes what `hostname` says, which may be the short name, and its CSRs are refused",
            _is_own,
        ),
        FlagRow(
            "node-ip",
            lambda placement: str(placement.node.address),
            "the address under which other machines reach the kubelet and pods of the host's network",
            "with two cards, or with VIPs on the machine, the kubelet may report another one",
            _is_own,
        ),
        FlagRow(
            "bootstrap-kubeconfig",
            layout.BOOTSTRAP_KUBECONFIG,
            "with this identity the kubelet may ask for a certificate of its own, and do nothing else. Never on the "
            "bootstrap node: there the kubelet would wait for an API that only its own pods can bring",
            "no CSR ever appears, and the node never joins",
            _joins,
        ),
        FlagRow(
            "kubeconfig",
            OWN_KUBECONFIG,
            "here the kubelet writes the kubeconfig with the certificate that it was given",
            "the kubelet stands alone, as on the bootstrap node",
            _joins,
        ),
        FlagRow(
            "node-labels",
            _roles,
            "operators choose their nodes by these roles. Upstream refuses them from a kubelet (the pipeline sets them "
            "there), OpenShift's kubelet has a patch that lets them pass",
            "daemon sets and installer pods of the control plane find no node",
            lambda placement: _joins(placement) and placement.is_openshift,
        ),
        FlagRow(
            "register-with-taints",
            lambda placement: f"{taint_of(placement.cluster, placement.node)}=:NoSchedule",
            "workloads keep off the control plane from the first moment; not where there are no workers",
            "pods land on a master before anybody could taint it",
            lambda placement: taint_of(placement.cluster, placement.node) is not None,
        ),
        VERBOSITY,
    ),
    "the bootstrap node's has flags alone; members' come from the machine-config operator's templates, where the "
    "address is found at boot (nodeip-configuration.service) and the name is the host's.",
)


def taint_of(cluster: Cluster, node: ClusterNode) -> str | None:
    """Masters are for themselves, unless there is nobody else."""
    if node.role is not NodeRole.MASTER or not cluster.workers:
        return None
    return MASTER_ROLE if cluster.is_openshift else CONTROL_PLANE_ROLE


def unit(placement: PodPlacement) -> str:
    runtime = "crio.service" if placement.is_openshift else "containerd.service"
    program = "/usr/bin/kubelet" if placement.is_openshift else "/usr/local/bin/kubelet"
    command = " \\\n    ".join([program, *KUBELET.command_line(placement)])
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
