"""The input for a control plane's files on one node: addresses, networks, images; and paths on the node."""

import ipaddress
import posixpath
from dataclasses import dataclass
from typing import Final

from umbilical.fault import RenderError
from umbilical.manifests.objects import IpAddress, IpNetwork
from umbilical.pki.control_plane_set import KUBERNETES, PkiRow

PKI_DIRECTORY: Final = "/etc/kubernetes/pki"
KUBECONFIG_DIRECTORY: Final = "/etc/kubernetes"
ETCD_DATA: Final = "/var/lib/etcd"
ETCD_CLIENT_PORT: Final = 2379
ETCD_PEER_PORT: Final = 2380
_ROWS: Final = {row.id: row for row in KUBERNETES}


@dataclass(frozen=True)
class ControlPlaneImages:
    etcd: str
    kube_apiserver: str
    controller_manager: str
    scheduler: str

    @classmethod
    def tagged(cls, repository: str, tag: str) -> "ControlPlaneImages":
        """Name the four images by their programs: REPOSITORY/kube-apiserver:TAG."""
        programs = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
        return cls(*(f"{repository}/{program}:{tag}" for program in programs))


@dataclass(frozen=True)
class ControlPlaneSpec:
    node_name: str
    node_ip: IpAddress
    """Address for other nodes; its IP family is the first of the API."""
    service_networks: tuple[IpNetwork, ...]
    pod_networks: tuple[IpNetwork, ...]
    images: ControlPlaneImages
    etcd_urls: tuple[str, ...] = ()
    """Empty: etcd on this node."""
    has_etcd: bool = True
    has_controllers: bool = True
    """Controller-manager and scheduler."""
    api_port: int = 6443
    node_prefixes: tuple[int, ...] = ()
    """Prefix length that the controller-manager allocates per node, one for each pod network. Empty: nodes register
    with their networks, which match existing routes."""
    is_throwaway: bool = False
    """Runs for minutes only: etcd does not fsync, and nothing is drained at the end."""

    def __post_init__(self) -> None:
        _check_families(self)
        if not (self.has_etcd or self.etcd_urls):
            raise _unusable("etcd", "has_etcd is false and etcd_urls is empty", "set etcd_urls")
        if self.node_prefixes and len(self.node_prefixes) != len(self.pod_networks):
            why = f"there are {len(self.pod_networks)} pod networks and {len(self.node_prefixes)} prefixes"
            raise _unusable("node prefixes", why, "set one for each pod network, or none")

    @property
    def every_address(self) -> str:
        """Address to listen on; `::` accepts IPv4 too."""
        families = {self.node_ip.version, *(network.version for network in self.service_networks)}
        return "::" if 6 in families else "0.0.0.0"

    @property
    def local_url(self) -> str:
        return f"https://localhost:{self.api_port}"

    @property
    def api_url(self) -> str:
        """URL for other nodes."""
        return url(self.node_ip, self.api_port)

    @property
    def etcd_servers(self) -> tuple[str, ...]:
        return self.etcd_urls or (f"https://localhost:{ETCD_CLIENT_PORT}",)


def url(address: IpAddress | str, port: int) -> str:
    """Return an https URL, IPv6 in brackets."""
    host = ipaddress.ip_address(address)
    return f"https://[{host}]:{port}" if host.version == 6 else f"https://{host}:{port}"


def public_path(row_id: str) -> str:
    """Return the path of a certificate or public key on a node."""
    return posixpath.join(PKI_DIRECTORY, _ROWS[row_id].public_file)


def key_path(row_id: str) -> str:
    return posixpath.join(PKI_DIRECTORY, _ROWS[row_id].key_file)


def row(row_id: str) -> PkiRow:
    return _ROWS[row_id]


def _check_families(spec: ControlPlaneSpec) -> None:
    for what, networks in (("service", spec.service_networks), ("pod", spec.pod_networks)):
        families = [network.version for network in networks]
        if not networks or len(set(families)) != len(families):
            why = f"they are {', '.join(map(str, networks)) or 'empty'}; one network per IP family is allowed"
            raise _unusable(f"{what} networks", why, "set one, or two of different families")
    if spec.service_networks[0].version != spec.node_ip.version:
        # kube-apiserver would not start: its address becomes an endpoint of a service in the first range.
        why = f"the node's address is {spec.node_ip}, the first service network {spec.service_networks[0]}"
        raise _unusable("service networks", why, "put the network of the node's family first")


def _unusable(field: str, why: str, remedy: str) -> RenderError:
    return RenderError("UMB119", f"could not render a control plane: invalid {field}", why, remedy)
