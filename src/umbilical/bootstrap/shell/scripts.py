"""Fills the spec's values into the two scripts for the node; `fill` serves other scripts too.

The placeholder of a value is `@NAME@`. The spec validates all values, so none contains a quote. On failure the library
prints UMB112 (no address for the node) or UMB116 (no image).
"""

import ipaddress
import posixpath
import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Final

from umbilical.bootstrap.names import AGENT_NAME, AGENT_SECRET, STATIC_POD, TunnelNames
from umbilical.bootstrap.spec import TunnelSpec
from umbilical.manifests.objects import IpNetwork

IMAGE_IN_PAYLOAD: Final = "apiserver-network-proxy"
STATE_DIRECTORY: Final = "/opt/openshift/umbilical"
NODE_IP_FILE: Final = posixpath.join(STATE_DIRECTORY, "node-ip")
# Outside every machine network. `ip route get` returns the route to it; no packet is sent.
_FAR: Final = {4: "1.1.1.1", 6: "2001:4860:4860::8888"}
_EVERYWHERE: Final = {4: "0.0.0.0/0", 6: "::/0"}
_SAFE: Final = re.compile(r"[A-Za-z0-9._:/@ -]*")
_PLACEHOLDER: Final = re.compile(r"@([A-Z_]+)@")


def library(spec: TunnelSpec, names: TunnelNames, *, makes_certificates: bool = True) -> bytes:
    """Render the file that bootkube.sh sources: three functions, one for each call in bootkube.sh."""
    true_here = {
        "FINDS_ADDRESS": spec.node_ip is None,
        "ASKS_FOR_IMAGE": spec.image is None,
        "MAKES_CERTIFICATES": makes_certificates,
        "OWNS_NAMESPACE": spec.owns_namespace,
    }
    return fill(__package__, "library.sh", {**_tunnel_values(spec), **_name_values(names)}, true_here)


def certificate_script() -> bytes:
    """Render the program that creates the certificates; its arguments are address, directory and hours."""
    return fill(__package__, "certificates.sh", {}, {})


def _tunnel_values(spec: TunnelSpec) -> dict[str, str]:
    networks = [network for network in spec.machine_networks if network.version == spec.family]
    return {
        "FAMILY": str(spec.family),
        "NODE_IP": str(spec.node_ip),
        "NETWORKS": " ".join(str(network) for network in networks) or _EVERYWHERE[spec.family],
        "TARGETS": " ".join([*map(_first_address, networks), _FAR[spec.family]]),
        "IMAGE": str(spec.image),
        "IMAGE_IN_PAYLOAD": IMAGE_IN_PAYLOAD,
        "CERTIFICATE_HOURS": str(spec.certificate_hours),
        "SOCKET": spec.socket_on_host,
        "NAMESPACE": spec.namespace,
        "AGENT_SECRET": AGENT_SECRET,
        "AGENT_NAME": AGENT_NAME,
    }


def _name_values(names: TunnelNames) -> dict[str, str]:
    return {
        "CERTIFICATE_SCRIPT": names.certificate_script,
        "PKI_DIRECTORY": names.pki_directory,
        "STATE_DIRECTORY": STATE_DIRECTORY,
        "NODE_IP_FILE": NODE_IP_FILE,
        "SERVER_POD": names.server_pod,
        "STATIC_POD_DIRECTORY": posixpath.dirname(STATIC_POD),
        "STATIC_POD_FILE": posixpath.basename(STATIC_POD),
        "NAMESPACE_FILE": names.namespace,
        "AGENT_SECRET_FILE": names.agent_secret,
        "AGENT_DAEMON_SET_FILE": names.agent_daemon_set,
        "SETUP_FUNCTION": names.setup_function,
        "MANIFESTS_FUNCTION": names.manifests_function,
        "CLEANUP_FUNCTION": names.cleanup_function,
    }


def _first_address(network: IpNetwork) -> str:
    """Return an address of the network; the route to it has our own address as its source."""
    return str(ipaddress.ip_address(network[0 if network.num_addresses == 1 else 1]))


def fill(package: str, name: str, values: dict[str, str], true_here: dict[str, bool]) -> bytes:
    """Fill a script of a package: replace `@NAME@` by its value, and resolve `#@if NAME`."""
    text = files(package).joinpath(name).read_text("utf-8")
    assert all(_SAFE.fullmatch(value) for value in values.values()), f"{name}: a value could end a word"
    kept = "\n".join(_kept_lines(text.split("\n"), true_here))
    return _PLACEHOLDER.sub(lambda found: values[found[1]], kept).encode()


def _kept_lines(lines: Iterable[str], true_here: dict[str, bool]) -> Iterable[str]:
    """Drop the lines that `#@if NAME`, `#@else` and `#@end` exclude, and these directives."""
    keep = True
    for line in lines:
        if line.startswith("#@if "):
            keep = true_here[line.removeprefix("#@if ")]
        elif line == "#@else":
            keep = not keep
        elif line == "#@end":
            keep = True
        elif keep:
            yield line
