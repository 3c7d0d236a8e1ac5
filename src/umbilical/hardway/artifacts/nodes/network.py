"""A node's address and name: a NetworkManager keyfile, and the host name.

Both say what the config says: the name is also that of the Node object, of its CSRs and in its certificates.
"""

from collections.abc import Iterator
from typing import Final

from umbilical.hardway.artifacts.nodes.parts import Parts
from umbilical.hardway.config.cluster import Cluster, Node, Role
from umbilical.manifests.tree import PUBLIC_MODE, SECRET_MODE

CONNECTION: Final = "machine"
KEYFILE: Final = f"/etc/NetworkManager/system-connections/{CONNECTION}.nmconnection"
HOSTNAME: Final = "/etc/hostname"


def add_network(parts: Parts, cluster: Cluster, node: Node) -> None:
    # NetworkManager passes over a keyfile that others than root can read.
    parts.files.add(KEYFILE, keyfile(cluster, node), SECRET_MODE)
    parts.files.add(HOSTNAME, f"{node.name}\n".encode(), PUBLIC_MODE)


def keyfile(cluster: Cluster, node: Node) -> bytes:
    """Without a MAC address or interface the connection fits any card: safe where there is one."""
    own, other = ("ipv4", "ipv6") if node.address.version == 4 else ("ipv6", "ipv4")
    sections = [_section("connection", _connection(node))]
    if node.mac:
        sections.append(_section("ethernet", [f"mac-address={node.mac}"]))
    sections += [_section(own, _addressing(cluster, node)), _section(other, ["method=disabled"])]
    return "\n".join(sections).encode()


def pod_routes(cluster: Cluster, node: Node) -> Iterator[tuple[str, str]]:
    """List the ways to other members' pods where no network operator makes them: network and next hop."""
    if node.role is Role.BOOTSTRAP:
        # It leaves; until then it reaches pods through the tunnel, or not at all.
        return
    for other in cluster.members:
        if other.id != node.id and other.pod_network is not None:
            yield str(other.pod_network), str(other.address)


def _section(name: str, lines: list[str]) -> str:
    return "\n".join([f"[{name}]", *lines, ""])


def _connection(node: Node) -> list[str]:
    lines = [f"id={CONNECTION}", "type=ethernet", "autoconnect=true"]
    return [*lines, f"interface-name={node.interface}"] if node.interface else lines


def _addressing(cluster: Cluster, node: Node) -> list[str]:
    networks = cluster.networks
    routes = [f"route{number}={way},{hop}" for number, (way, hop) in enumerate(pod_routes(cluster, node), 1)]
    return [
        "method=manual",
        f"address1={node.address}/{networks.machine.prefixlen}",
        f"gateway={networks.gateway}",
        f"dns={networks.dns};",
        *routes,
    ]
