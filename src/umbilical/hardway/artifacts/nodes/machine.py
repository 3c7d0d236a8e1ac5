"""Files of a node's machine: address and host name, drop-ins of its container runtime, and first-boot annotations.

The machine-config server would add the annotations, but these machines do not fetch their config from it.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs, NodeBase
from umbilical.hardway.artifacts.nodes.merging import NodeParts
from umbilical.hardway.artifacts.static_pods.placement import PodPlacement
from umbilical.hardway.config.cluster import Cluster, ClusterNode, NodeRole
from umbilical.manifests.objects import CONFIG_DIRECTORY, bridge_conflist
from umbilical.manifests.tree import PUBLIC_MODE, SECRET_MODE

CRIO_DROP_INS: Final = "/etc/crio/crio.conf.d"
PAUSE_DROP_IN: Final = f"{CRIO_DROP_INS}/00-pause.conf"
PAUSE_IMAGE: Final = "pod"
"""Tag of the pause image in a release."""
CONFLIST: Final = f"{CONFIG_DIRECTORY}/10-pods.conflist"


def add_pause_image(parts: NodeParts, placement: PodPlacement) -> None:
    """Set the pause image: the pull secret has no credentials for the registry of CRI-O's default."""
    content = (
        "[crio.image]\n"
        f'pause_image = "{placement.image(PAUSE_IMAGE)}"\n'
        f'pause_image_auth_file = "{layout.PULL_SECRET}"\n'
        # CRI-O would run /pause, which this image does not have.
        'pause_command = "/usr/bin/pod"\n'
    )
    parts.files.add(PAUSE_DROP_IN, content.encode(), PUBLIC_MODE)


def add_pull_secret(parts: NodeParts, inputs: Inputs) -> None:
    parts.files.add(layout.PULL_SECRET, inputs.pull_secret, SECRET_MODE)


def add_pod_network(parts: NodeParts, node: ClusterNode) -> None:
    """Write the CNI config of the kubernetes profile: a bridge with addresses from the node's pod CIDR."""
    if node.pod_network is not None:
        content = bridge_conflist("pods", layout.POD_BRIDGE, [node.pod_network], with_host_ports=True)
        parts.files.add(CONFLIST, content, PUBLIC_MODE)


CONNECTION: Final = "machine"
KEYFILE: Final = f"/etc/NetworkManager/system-connections/{CONNECTION}.nmconnection"
HOSTNAME: Final = "/etc/hostname"


def add_network(parts: NodeParts, cluster: Cluster, node: ClusterNode) -> None:
    # NetworkManager ignores a keyfile that other users than root can read.
    parts.files.add(KEYFILE, keyfile(cluster, node), SECRET_MODE)
    parts.files.add(HOSTNAME, f"{node.name}\n".encode(), PUBLIC_MODE)


def keyfile(cluster: Cluster, node: ClusterNode) -> bytes:
    """Write the connection's keyfile; without MAC address and interface it matches any card, so there must be one."""
    own, other = ("ipv4", "ipv6") if node.address.version == 4 else ("ipv6", "ipv4")
    sections = [_section("connection", _connection(node))]
    if node.mac:
        sections.append(_section("ethernet", [f"mac-address={node.mac}"]))
    sections += [_section(own, _addressing(cluster, node)), _section(other, ["method=disabled"])]
    return "\n".join(sections).encode()


def pod_routes(cluster: Cluster, node: ClusterNode) -> Iterator[tuple[str, str]]:
    """List network and next hop of the routes to other nodes' pods, if no network operator makes them."""
    if node.role is NodeRole.BOOTSTRAP:
        # The bootstrap node reaches pods only through the tunnel.
        return
    for other in cluster.members:
        if other.id != node.id and other.pod_network is not None:
            yield str(other.pod_network), str(other.address)


def _section(name: str, lines: list[str]) -> str:
    return "\n".join([f"[{name}]", *lines, ""])


def _connection(node: ClusterNode) -> list[str]:
    lines = [f"id={CONNECTION}", "type=ethernet", "autoconnect=true"]
    return [*lines, f"interface-name={node.interface}"] if node.interface else lines


def _addressing(cluster: Cluster, node: ClusterNode) -> list[str]:
    networks = cluster.networks
    routes = [f"route{number}={pods},{hop}" for number, (pods, hop) in enumerate(pod_routes(cluster, node), 1)]
    return [
        "method=manual",
        f"address1={node.address}/{networks.machine.prefixlen}",
        f"gateway={networks.gateway}",
        f"dns={networks.dns};",
        *routes,
    ]


NODE_ANNOTATIONS: Final = "/etc/machine-config-daemon/node-annotations.json"
CONTENT: Final = "/etc/mcs-machine-config-content.json"
ENCAPSULATED: Final = "/etc/ignition-machine-config-encapsulated.json"
ANNOTATION: Final = "machineconfiguration.openshift.io"
_NAMES: Final = ("currentConfig", "desiredConfig", "firstPivotConfig")


def add_first_boot(parts: NodeParts, base: NodeBase) -> None:
    annotations = {f"{ANNOTATION}/{name}": base.name for name in _NAMES} | {f"{ANNOTATION}/state": "Done"}
    parts.files.add(NODE_ANNOTATIONS, _json(annotations), PUBLIC_MODE)
    # The machine-config server makes it world-readable, but it contains the pull secret, and only root reads it.
    parts.files.add(CONTENT, base.machine_config, SECRET_MODE)
    parts.last.add(ENCAPSULATED, _json(encapsulated(base)), PUBLIC_MODE)


def encapsulated(base: NodeBase) -> dict[str, Any]:
    """Return the MachineConfig with an empty Ignition config: OS image and kernel arguments remain."""
    machine_config: dict[str, Any] = json.loads(base.machine_config)
    version = json.loads(base.config)["ignition"]["version"]
    spec = {**machine_config.get("spec", {}), "config": {"ignition": {"version": version}}}
    return {**machine_config, "spec": spec}


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
