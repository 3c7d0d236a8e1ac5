"""A node's machine: address and host name, what its container runtime is told, and the annotations of its first boot.

The runtime's own configuration belongs to the machine; here is what differs. The machine-config server adds the
annotations where a machine asks it; here nobody asks.
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
"""Its tag in a release."""
CONFLIST: Final = f"{CONFIG_DIRECTORY}/10-pods.conflist"


def add_pause_image(parts: NodeParts, placement: PodPlacement) -> None:
    """CRI-O's compiled-in pause image is on a registry that the pull secret does not know."""
    content = (
        "[crio.image]\n"
        f'pause_image = "{placement.image(PAUSE_IMAGE)}"\n'
        f'pause_image_auth_file = "{layout.PULL_SECRET}"\n'
        # The image has no /pause, which CRI-O would run.
        'pause_command = "/usr/bin/pod"\n'
    )
    parts.files.add(PAUSE_DROP_IN, content.encode(), PUBLIC_MODE)


def add_pull_secret(parts: NodeParts, inputs: Inputs) -> None:
    parts.files.add(layout.PULL_SECRET, inputs.pull_secret, SECRET_MODE)


def add_pod_network(parts: NodeParts, node: ClusterNode) -> None:
    """Where nobody else brings one: a bridge, and addresses from the node's own piece of the pod network."""
    if node.pod_network is not None:
        content = bridge_conflist("pods", layout.POD_BRIDGE, [node.pod_network])
        parts.files.add(CONFLIST, content, PUBLIC_MODE)


CONNECTION: Final = "machine"
KEYFILE: Final = f"/etc/NetworkManager/system-connections/{CONNECTION}.nmconnection"
HOSTNAME: Final = "/etc/hostname"


def add_network(parts: NodeParts, cluster: Cluster, node: ClusterNode) -> None:
    # NetworkManager passes over a keyfile that others than root can read.
    parts.files.add(KEYFILE, keyfile(cluster, node), SECRET_MODE)
    parts.files.add(HOSTNAME, f"{node.name}\n".encode(), PUBLIC_MODE)


def keyfile(cluster: Cluster, node: ClusterNode) -> bytes:
    """Without a MAC address or interface the connection fits any card: safe where there is one."""
    own, other = ("ipv4", "ipv6") if node.address.version == 4 else ("ipv6", "ipv4")
    sections = [_section("connection", _connection(node))]
    if node.mac:
        sections.append(_section("ethernet", [f"mac-address={node.mac}"]))
    sections += [_section(own, _addressing(cluster, node)), _section(other, ["method=disabled"])]
    return "\n".join(sections).encode()


def pod_routes(cluster: Cluster, node: ClusterNode) -> Iterator[tuple[str, str]]:
    """List the ways to other members' pods where no network operator makes them: network and next hop."""
    if node.role is NodeRole.BOOTSTRAP:
        # It leaves; until then it reaches pods through the tunnel, or not at all.
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
    routes = [f"route{number}={way},{hop}" for number, (way, hop) in enumerate(pod_routes(cluster, node), 1)]
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
    # The server writes it for everybody to read, but the pull secret is in it; its reader is root.
    parts.files.add(CONTENT, base.machine_config, SECRET_MODE)
    parts.last.add(ENCAPSULATED, _json(encapsulated(base)), PUBLIC_MODE)


def encapsulated(base: NodeBase) -> dict[str, Any]:
    """Keep what Ignition cannot do (the OS image, kernel arguments), and leave of its config only the version."""
    machine_config: dict[str, Any] = json.loads(base.machine_config)
    version = json.loads(base.config)["ignition"]["version"]
    spec = {**machine_config.get("spec", {}), "config": {"ignition": {"version": version}}}
    return {**machine_config, "spec": spec}


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
