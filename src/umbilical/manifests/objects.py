"""What more than one subject renders in its plainest form: objects as dicts, kubeconfigs with everything in them, the
CNI configuration of a node without an operator; and the values that every spec checks alike.

Who owns an object decides its labels, not this module.
"""

import base64
import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

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
"""Where agents reach a server, unless it is told otherwise."""
# The kubelet, etcd, the API servers, the machine config server and journal-gatewayd of a bootstrap node, and what
# metal3 adds on bare metal: a server that takes one of these keeps the node from coming up.
RESERVED_PORTS: Final = frozenset(
    {2379, 2380, 2381, 5050, 6080, 6180, 6181, 6183, 6385, 6388, 6443, 9978, 9979, 9980}
    | {10250, 10257, 10259, 19531, 22623, 22624}
)
PORT_RANGE: Final = range(1024, 49152)
LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# An image reference goes through sed into YAML, so only what a reference may hold is let in.
IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,510}")


ADDRESSES_DIRECTORY: Final = "/var/lib/cni/networks"
CONFIG_DIRECTORY: Final = "/etc/cni/net.d"
"""Where containerd looks."""
_DEFAULT_ROUTES: Final = {4: "0.0.0.0/0", 6: "::/0"}


def bridge_conflist(name: str, bridge: str, networks: Sequence[IpNetwork]) -> bytes:
    """Write the configuration for the networks of one node, in their order: the first gives the pod's main address."""
    plugins = [_bridge(bridge, networks)]
    return json.dumps({"cniVersion": "1.0.0", "name": name, "plugins": plugins}, indent=2).encode()


def _bridge(bridge: str, networks: Sequence[IpNetwork]) -> dict[str, Any]:
    return {
        "type": "bridge",
        "bridge": bridge,
        # Where the bridge has the first address of the range already, the plugin is content.
        "isGateway": True,
        "hairpinMode": True,
        # The plugin would masquerade between nodes too, and hide which pod asked.
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
    """Nothing in it names a file, so it can be moved; it holds a key, so it is as secret as one."""
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
