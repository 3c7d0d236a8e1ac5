"""Objects that several rooms render: plain objects as dicts, self-contained kubeconfigs, the CNI configuration of a
node; constants that all specs check; the name of our image and the programs in it.

Labels are up to the owner of an object.
"""

import base64
import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from umbilical import __version__
from umbilical.pki.pem import KeyPair

Object = dict[str, Any]


def manifest(api_version: str, kind: str, head: Mapping[str, Any], **body: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": dict(head), **body}


def secret(head: Mapping[str, Any], data: Mapping[str, bytes], kind: str = "Opaque") -> Object:
    encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
    return manifest("v1", "Secret", head, type=kind, data=encoded)


def config_map(head: Mapping[str, Any], data: Mapping[str, str]) -> Object:
    return manifest("v1", "ConfigMap", head, data=dict(data))


IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

AGENT_PORT: Final = 8091
"""Default port of a server for agents."""
# Ports of the kubelet, etcd, the API servers, the machine config server and journal-gatewayd on a bootstrap node, and
# of metal3 on bare metal: a server on one of these would break the node.
RESERVED_PORTS: Final = frozenset(
    {2379, 2380, 2381, 5050, 6080, 6180, 6181, 6183, 6385, 6388, 6443, 9978, 9979, 9980}
    | {10250, 10257, 10259, 19531, 22623, 22624}
)
PORT_RANGE: Final = range(1024, 49152)
LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# sed writes an image reference into YAML, so only valid characters are allowed.
IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,510}")

DEFAULT_IMAGE: Final = f"localhost/umbilical:{__version__}"
"""Our image, if no other is given. No registry has it: nodes load it from an archive, or a mirror has another name."""
IMAGE_PROGRAMS: Final[Mapping[str, str]] = {
    "/usr/bin/umbilical": "umbilical",
    "/usr/bin/proxy-server": "proxy-server",
    "/usr/bin/proxy-agent": "proxy-agent",
    # Paths of upstream's images; all others are OpenShift's.
    "/proxy-server": "proxy-server",
    "/proxy-agent": "proxy-agent",
    "/usr/bin/konnectivity-socks5-proxy": "konnectivity-socks5-proxy",
    "/usr/bin/konnectivity-https-proxy": "konnectivity-https-proxy",
}
"""All programs that manifests may name in our image, with the installed command that each is. It has no shell."""
INTERPRETER: Final = "/usr/bin/python3"
"""The image's Python, which only the test webhook names: its code is in a ConfigMap."""


ADDRESSES_DIRECTORY: Final = "/var/lib/cni/networks"
CONFIG_DIRECTORY: Final = "/etc/cni/net.d"
"""Where containerd reads CNI configurations."""
_DEFAULT_ROUTES: Final = {4: "0.0.0.0/0", 6: "::/0"}


def bridge_conflist(name: str, bridge: str, networks: Sequence[IpNetwork], *, with_host_ports: bool = False) -> bytes:
    """Return the CNI configuration for the networks of one node; the first gives the pod's main address.

    `with_host_ports`: hostPort works; the plugin for it needs the program iptables.
    """
    host_ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    plugins = [_bridge(bridge, networks), *([host_ports] if with_host_ports else [])]
    return json.dumps({"cniVersion": "1.0.0", "name": name, "plugins": plugins}, indent=2).encode()


def _bridge(bridge: str, networks: Sequence[IpNetwork]) -> dict[str, Any]:
    return {
        "type": "bridge",
        "bridge": bridge,
        # Accepts a bridge that already has the first address of the range.
        "isGateway": True,
        "hairpinMode": True,
        # The plugin would also masquerade between nodes and hide the address of the pod.
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "dataDir": ADDRESSES_DIRECTORY,
            "ranges": [[{"subnet": str(network), "gateway": str(network[1])}] for network in networks],
            "routes": [{"dst": _DEFAULT_ROUTES[network.version]} for network in networks],
        },
    }


CLUSTER: Final = "kubernetes"


def kubeconfig(
    user: str, server_url: str, authority_pem: bytes, pair: KeyPair, cluster_name: str = CLUSTER
) -> dict[str, Any]:
    """Return a kubeconfig with embedded certificates and key: portable, and as secret as the key."""
    cluster = {"server": server_url, "certificate-authority-data": _base64(authority_pem)}
    credentials = {"client-certificate-data": _base64(pair.certificate), "client-key-data": _base64(pair.key)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster_name, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": user, "context": {"cluster": cluster_name, "user": user}}],
        "current-context": user,
    }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
