"""The kubelet of a node: its configuration, its flags with their reasons, and its unit.

On the bootstrap node it is standalone: it neither registers nor authorizes through the API. On other nodes it requests
its certificates itself.
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
"""The default is below /usr, which RHCOS mounts read-only."""
CRIO_SOCKET: Final = "/var/run/crio/crio.sock"
CONTAINERD_SOCKET: Final = "/run/containerd/containerd.sock"
CLUSTER_DOMAIN: Final = "cluster.local"
CONTROL_PLANE_ROLE: Final = "node-role.kubernetes.io/control-plane"
MASTER_ROLE: Final = "node-role.kubernetes.io/master"
WORKER_ROLE: Final = "node-role.kubernetes.io/worker"


def add_kubelet(parts: NodeParts, placement: PodPlacement) -> None:
    parts.files.add(layout.KUBELET_CONFIG, yaml_bytes(configuration(placement)), PUBLIC_MODE)
    # The kubelet exits at its start if the directory of drop-ins is missing.
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
        # One slow image pull must not delay the other static pods.
        "serializeImagePulls": False,
        "runtimeRequestTimeout": "10m",
        "volumePluginDir": VOLUME_PLUGINS,
    }
    return {**common, **(_standalone() if placement.is_bootstrap else _registered(placement.cluster))}


def _standalone() -> dict[str, Any]:
    """Turn the webhooks off: by default a kubelet with a configuration file uses the API, and exits without one."""
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
    """Tell whether the unit is for one node; in OpenShift all nodes of a role share one unit."""
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
            "configuration file with all settings that a file can contain",
            "the settings would have to be flags, most of which are deprecated",
        ),
        FlagRow(
            "config-dir",
            layout.KUBELET_CONFIG_DROP_INS,
            "directory of configuration drop-ins of the machine's owner",
            "a lab could not configure the kubelet's control groups",
        ),
        FlagRow(
            "hostname-override",
            lambda placement: placement.node.name,
            "the node's name in the API, the same as in certificates, CSRs and load balancer",
            "the kubelet uses the output of `hostname`, which may be the short name, and its CSRs are denied",
            _is_own,
        ),
        FlagRow(
            "node-ip",
            lambda placement: str(placement.node.address),
            "address at which other machines reach the kubelet and hostNetwork pods",
            "with two network cards, or with VIPs on the machine, the kubelet may report another address",
            _is_own,
        ),
        FlagRow(
            "bootstrap-kubeconfig",
            layout.BOOTSTRAP_KUBECONFIG,
            "kubeconfig that only allows the kubelet to request its own certificate. Never on the bootstrap node: the "
            "kubelet would wait for an API that runs in its own static pods",
            "the node creates no CSR and never joins",
            _joins,
        ),
        FlagRow(
            "kubeconfig",
            OWN_KUBECONFIG,
            "file to which the kubelet writes its kubeconfig with its own certificate",
            "the kubelet is standalone, as on the bootstrap node",
            _joins,
        ),
        FlagRow(
            "node-labels",
            _roles,
            "role labels by which operators choose nodes. Upstream kubelets may not set them (the pipeline does it "
            "there); OpenShift's kubelet has a patch that allows it",
            "DaemonSets and installer pods of the control plane find no node",
            lambda placement: _joins(placement) and placement.is_openshift,
        ),
        FlagRow(
            "register-with-taints",
            lambda placement: f"{taint_of(placement.cluster, placement.node)}=:NoSchedule",
            "keep workloads off the masters from the start, if there are workers",
            "pods are scheduled on a master before it gets its taint",
            lambda placement: taint_of(placement.cluster, placement.node) is not None,
        ),
        VERBOSITY,
    ),
    "the bootstrap node's kubelet has only flags; on other nodes they come from the machine-config operator's "
    "templates, which find the address at boot (nodeip-configuration.service) and use the host's name.",
)


def taint_of(cluster: Cluster, node: ClusterNode) -> str | None:
    """Return the taint of a master, if there are workers."""
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
