"""The resolved configuration of a hard way cluster: every name, address and URL that artifacts need.

`reading` makes it from cluster.yaml. Other modules take these values from here and do not compute them again.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeVar, cast

from umbilical.manifests.objects import IpAddress, IpNetwork
from umbilical.pki.profiles import KeyType

API_PORT: Final = 6443
MACHINE_CONFIG_PORT: Final = 22623
DNS_NUMBER: Final = 10
"""The cluster DNS Service has this address of the service network, in OpenShift as in most clusters."""


class ClusterProfile(Enum):
    OPENSHIFT = "openshift"
    """RHCOS and a release image; operators take over at the end."""
    KUBERNETES = "kubernetes"
    """Upstream programs; the masters keep the static pods that we render."""


class NodeRole(Enum):
    BOOTSTRAP = "bootstrap"
    MASTER = "master"
    WORKER = "worker"


class Switch(Enum):
    AUTO = "auto"
    ON = "on"
    OFF = "off"


class MachinesKind(Enum):
    LAB = "lab"
    """Network namespaces of this machine; kubernetes profile only."""
    LIBVIRT = "libvirt"


@dataclass(frozen=True)
class ClusterNode:
    id: str
    """`master-0`: used in file names and machine names."""
    role: NodeRole
    address: IpAddress
    name: str
    """`master-0.ocp4.example.com`: name of the host, its Node object, its CSRs and its load balancer entry."""
    pod_network: IpNetwork | None = None
    """The node's pod CIDR in the kubernetes profile; in OpenShift the network operator assigns it."""
    mac: str = ""
    interface: str = ""
    """If mac and interface are both empty, the machine has one network card."""


@dataclass(frozen=True)
class AddressRange:
    first: IpAddress
    last: IpAddress


@dataclass(frozen=True)
class ClusterNetworks:
    machine: IpNetwork
    pods: IpNetwork
    services: IpNetwork
    host_prefix: int
    """Prefix length of each node's pod CIDR."""
    gateway: IpAddress
    dns: IpAddress
    api_vip: IpAddress
    ingress_vip: IpAddress
    dhcp: AddressRange | None = None
    """For live systems only; an installed machine has the fixed address from its Ignition file."""


@dataclass(frozen=True)
class ReleaseSource:
    """Source of images and manifests: OpenShift has an image or a directory, kubernetes a repository and a tag."""

    image: str = ""
    directory: str = ""
    version: str = ""
    repository: str = ""
    tag: str = ""
    tunnel_archive: str = ""
    """File with our image, which a lab's machines load; empty: the tunnel's image is one of the others."""


@dataclass(frozen=True)
class ClusterAccess:
    ssh_keys: tuple[str, ...] = ()
    pull_secret_file: str = ""
    ssh_key_file: str = ""
    """The private key with which the pipeline logs in to nodes; only ssh reads the file."""


@dataclass(frozen=True)
class MachineSize:
    cpus: int
    memory_mib: int
    disk_gib: int


@dataclass(frozen=True)
class Libvirt:
    network: str
    pool: str
    pool_directory: str
    bridge: str
    uplink: str
    """The host's outgoing network interface, for masquerading."""
    iso: str
    """File name in the pool directory."""
    stats_port: int = 9000


@dataclass(frozen=True)
class CertificateTerms:
    """Key type and lifetimes of certificates."""

    key_type: KeyType = KeyType.RSA_2048
    short_hours: int = 48
    """Lifetime of certificates that the installer issues for one day; 48 h allow a boot on the next day."""
    budget_hours: int = 4
    """Maximum duration of an installation; no certificate may expire earlier."""


@dataclass(frozen=True)
class Cluster:
    profile: ClusterProfile
    name: str
    base_domain: str
    networks: ClusterNetworks
    nodes: tuple[ClusterNode, ...]
    """Bootstrap, masters, workers, in this order."""
    release: ReleaseSource
    machines: MachinesKind = MachinesKind.LIBVIRT
    access: ClusterAccess = field(default_factory=ClusterAccess)
    libvirt: Libvirt | None = None
    sizes: dict[NodeRole, MachineSize] = field(default_factory=dict)
    konnectivity: Switch = Switch.AUTO
    kube_proxy: Switch = Switch.AUTO
    terms: CertificateTerms = field(default_factory=CertificateTerms)

    @property
    def is_openshift(self) -> bool:
        return self.profile is ClusterProfile.OPENSHIFT

    @property
    def domain(self) -> str:
        return f"{self.name}.{self.base_domain}"

    @property
    def api_name(self) -> str:
        return f"api.{self.domain}"

    @property
    def internal_api_name(self) -> str:
        return f"api-int.{self.domain}"

    @property
    def apps_domain(self) -> str:
        return f"apps.{self.domain}"

    @property
    def api_url(self) -> str:
        return f"https://{self.api_name}:{API_PORT}"

    @property
    def internal_api_url(self) -> str:
        return f"https://{self.internal_api_name}:{API_PORT}"

    @property
    def service_ip(self) -> IpAddress:
        """Address of the Service `kubernetes`: the first one of the range."""
        return ipaddress.ip_address(self.networks.services[1])

    @property
    def dns_ip(self) -> IpAddress:
        return ipaddress.ip_address(self.networks.services[DNS_NUMBER])

    @property
    def bootstrap(self) -> ClusterNode:
        return next(node for node in self.nodes if node.role is NodeRole.BOOTSTRAP)

    @property
    def masters(self) -> tuple[ClusterNode, ...]:
        return tuple(node for node in self.nodes if node.role is NodeRole.MASTER)

    @property
    def workers(self) -> tuple[ClusterNode, ...]:
        return tuple(node for node in self.nodes if node.role is NodeRole.WORKER)

    @property
    def members(self) -> tuple[ClusterNode, ...]:
        """All nodes but the bootstrap node."""
        return self.masters + self.workers

    @property
    def routers(self) -> tuple[ClusterNode, ...]:
        """Nodes on which ingress runs: workers, or masters if there are no workers."""
        return self.workers or self.masters

    @property
    def has_kube_proxy(self) -> bool:
        """AUTO: on, unless the profile is openshift, where the network operator implements Services."""
        return self.kube_proxy is Switch.ON or (self.kube_proxy is Switch.AUTO and not self.is_openshift)

    def node(self, node_id: str) -> ClusterNode:
        return next(node for node in self.nodes if node.id == node_id)


Given = TypeVar("Given")


class Origin(Enum):
    GIVEN = "given"
    DEFAULT = "default"
    COMPUTED = "computed"


@dataclass(frozen=True)
class ResolvedValue:
    path: str
    value: Any
    origin: Origin
    source: str = ""
    """The values it is computed from, or its path in the file if that differs."""

    @property
    def plain(self) -> Any:
        """The value as JSON and YAML write it."""
        return _plain(self.value)


class Origins:
    """Takes each value once and records its origin."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._values: dict[str, ResolvedValue] = {}

    @property
    def values(self) -> tuple[ResolvedValue, ...]:
        return tuple(self._values.values())

    def is_given(self, path: str) -> bool:
        return path in self._given

    def take(self, path: str, otherwise: Given, source: str = "", given_as: str = "") -> Given:
        """Return the user's value, else `otherwise`, which counts as a default if `source` is empty.

        `given_as` is the path in the user's file if it differs from `path`.
        """
        place = given_as or path
        if place in self._given:
            return cast(Given, self._note(ResolvedValue(path, self._given[place], Origin.GIVEN, given_as)))
        origin = Origin.COMPUTED if source else Origin.DEFAULT
        return cast(Given, self._note(ResolvedValue(path, otherwise, origin, source)))

    def derive(self, path: str, value: Given, source: str) -> Given:
        """Record a value that users cannot set."""
        return cast(Given, self._note(ResolvedValue(path, value, Origin.COMPUTED, source)))

    def _note(self, value: ResolvedValue) -> Any:
        self._values[value.path] = value
        return value.value


def nested(values: tuple[ResolvedValue, ...]) -> dict[str, Any]:
    """Build the tree of a file from the paths of the values."""
    root: dict[str, Any] = {}
    for one in values:
        *folders, name = one.path.split(".")
        place = root
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = one.plain
    return root


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)
