"""Several servers in a lab: certificates, commands, and one front address for kube-apiserver.

The servers run as processes on nodes. Agents find them through their leases.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import yaml

from umbilical.bootstrap.render.kube_apiserver import EGRESS_DIRECTORY
from umbilical.lab.topology import IpAddress, Topology
from umbilical.manifests.tree import yaml_bytes
from umbilical.pki.authority import Authority
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType
from umbilical.pki.tunnel_set import DAY, TunnelLeaf, TunnelRole, create_authority

PLACE: Final = "/etc/umbilical"
KUBECONFIG: Final = f"{PLACE}/kubeconfig"
FRONT_NUMBER: Final = 200
"""Number of the front address in the machine network; no node has it, packet filter rules redirect it."""
CLIENT_PORT: Final = 8090
AGENT_PORT: Final = 8091
SERVER_HEALTH_PORT: Final = 8092
AGENT_HEALTH_PORT: Final = 8093
GRACE: Final = "30s"


@dataclass(frozen=True)
class TunnelCredentials:
    """Certificates of one CA."""

    authority: bytes
    servers: Mapping[str, KeyPair]
    agent: KeyPair
    client: KeyPair
    """For kube-apiserver."""


def front_address(topology: Topology) -> IpAddress:
    return topology.machine_networks[0][FRONT_NUMBER]


def make_credentials(topology: Topology, nodes: Sequence[str], now: datetime) -> TunnelCredentials:
    """Issue certificates; a server's is valid for its own address and the front address."""
    authority = create_authority(Authority, now, DAY, KeyType.ECDSA_P256)
    front = str(front_address(topology))
    servers = {
        node: authority.issue(
            TunnelLeaf(TunnelRole.SERVER, KeyType.ECDSA_P256, (topology.node(node).address, front)), now, DAY
        )
        for node in nodes
    }
    agent, client = (
        authority.issue(TunnelLeaf(role, KeyType.ECDSA_P256), now, DAY)
        for role in (TunnelRole.AGENT, TunnelRole.CLIENT)
    )
    return TunnelCredentials(authority.bundle, servers, agent, client)


def server_files(credentials: TunnelCredentials, node: str) -> dict[str, bytes]:
    return {f"{PLACE}/ca.crt": credentials.authority, **_pair_files("server", credentials.servers[node])}


def agent_files(credentials: TunnelCredentials) -> dict[str, bytes]:
    return {f"{PLACE}/ca.crt": credentials.authority, **_pair_files("agent", credentials.agent)}


def client_files(authority: bytes, pair: KeyPair) -> dict[str, bytes]:
    """kube-apiserver's client certificate, in the directory that its pod mounts."""
    names = {"ca.crt": authority, "client.crt": pair.certificate, "client.key": pair.key}
    return {f"{EGRESS_DIRECTORY}/{name}": content for name, content in names.items()}


def server_command(topology: Topology, node: str) -> list[str]:
    address = in_url(topology.node(node).address)
    return [
        *("umbilical", "server", "run", "--id", node, "--mode", "http-connect"),
        *("--listen", f"{address}:{CLIENT_PORT}"),
        *("--cert", f"{PLACE}/server.crt", "--key", f"{PLACE}/server.key", "--ca", f"{PLACE}/ca.crt"),
        *("--agents", f":{AGENT_PORT}", "--agent-ca", f"{PLACE}/ca.crt"),
        *("--agent-cert", f"{PLACE}/server.crt", "--agent-key", f"{PLACE}/server.key"),
        *("--health", f":{SERVER_HEALTH_PORT}", "--graceful-shutdown", GRACE),
        *("--publish-lease", "--advertise", f"{address}:{AGENT_PORT}", "--kubeconfig", KUBECONFIG),
    ]


def agent_command(node: str) -> list[str]:
    """The agent finds all servers with `--count-leases`."""
    return [
        *("umbilical", "agent", "run", "--id", node, "--ca", f"{PLACE}/ca.crt"),
        *("--cert", f"{PLACE}/agent.crt", "--key", f"{PLACE}/agent.key"),
        *("--health", f":{AGENT_HEALTH_PORT}", "--count-leases", "--kubeconfig", KUBECONFIG),
    ]


def egress_file(host: str) -> bytes:
    """Egress selector with one address or name, over TCP with mTLS."""
    files = {"caBundle": "ca.crt", "clientKey": "client.key", "clientCert": "client.crt"}
    tls = {key: f"{EGRESS_DIRECTORY}/{name}" for key, name in files.items()}
    url = f"https://{host}:{CLIENT_PORT}"
    tunnel = {"proxyProtocol": "HTTPConnect", "transport": {"tcp": {"url": url, "tlsConfig": tls}}}
    direct = {"proxyProtocol": "Direct"}
    return yaml_bytes(
        {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [
                {"name": "cluster", "connection": tunnel},
                {"name": "controlplane", "connection": direct},
                {"name": "etcd", "connection": direct},
            ],
        }
    )


def kubeconfig_for_nodes(local: bytes, server_url: str) -> bytes:
    """Return the control plane's kubeconfig with a server URL for other nodes."""
    content: dict[str, Any] = yaml.safe_load(local)
    for entry in content["clusters"]:
        entry["cluster"]["server"] = server_url
    return yaml_bytes(content)


def _pair_files(name: str, pair: KeyPair) -> dict[str, bytes]:
    return {f"{PLACE}/{name}.crt": pair.certificate, f"{PLACE}/{name}.key": pair.key}


def in_url(address: str) -> str:
    return f"[{address}]" if ipaddress.ip_address(address).version == 6 else address
