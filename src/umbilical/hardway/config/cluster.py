"""The one input of the hard way, resolved: every value that artifacts need, with nothing left to be computed twice.

`config_reading` makes it from a file. Whoever needs a name, an address or a URL of the cluster takes it from here.
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
"""The cluster's resolver has this address of the service network, in OpenShift as in most clusters."""


class ClusterProfile(Enum):
    OPENSHIFT = "openshift"
    """RHCOS and a release image; operators take over at the end."""
    KUBERNETES = "kubernetes"
    """Upstream programs; static pods on the masters are ours to the end."""


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
    """Network namespaces of this machine; for the kubernetes profile."""
    LIBVIRT = "libvirt"


@dataclass(frozen=True)
class ClusterNode:
    id: str
    """`master-0`: names files and machines."""
    role: NodeRole
    address: IpAddress
    name: str
    """`master-0.ocp4.example.com`: of the host, its Node object, its CSRs, its label in the load balancer."""
    pod_network: IpNetwork | None = None
    """Its piece of the pod network in the kubernetes profile, where no network operator cuts it."""
    mac: str = ""
    interface: str = ""
    """Both empty: the machine has one network card."""


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
    """How large a piece of the pod network each node gets."""
    gateway: IpAddress
    dns: IpAddress
    api_vip: IpAddress
    ingress_vip: IpAddress
    dhcp: AddressRange | None = None
    """For live systems only; installed ones have the address that their Ignition file says."""


@dataclass(frozen=True)
class ReleaseSource:
    """Where images and manifests come from: one of image and directory in OpenShift, a repository otherwise."""

    image: str = ""
    directory: str = ""
    version: str = ""
    repository: str = ""
    tag: str = ""


@dataclass(frozen=True)
class ClusterAccess:
    ssh_keys: tuple[str, ...] = ()
    pull_secret_file: str = ""
    ssh_key_file: str = ""
    """The private half, by which the pipeline enters nodes; its content is read by ssh alone."""


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
    """The host's interface to the world, for masquerading."""
    iso: str
    """File name in the pool directory."""
    ignition_port: int = 8080
    stats_port: int = 9000


@dataclass(frozen=True)
class CertificateTerms:
    """How long certificates live."""

    key_type: KeyType = KeyType.RSA_2048
    short_hours: int = 48
    """Of what an installer gives one day: generated in the evening, booted in the morning."""
    budget_hours: int = 4
    """How long an installation may take; nothing may end before that."""


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
        """Of the service `kubernetes`: the first of the range."""
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
        """All that stay."""
        return self.masters + self.workers

    @property
    def routers(self) -> tuple[ClusterNode, ...]:
        """Where ingress runs: on masters where there are no workers."""
        return self.workers or self.masters

    @property
    def has_kube_proxy(self) -> bool:
        """AUTO: where nothing else implements services. OpenShift's network operator does."""
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
    """From which values it is computed, or where the file has it if that is another path."""

    @property
    def plain(self) -> Any:
        """The value as JSON and YAML have it."""
        return _plain(self.value)


class Origins:
    """Takes each value once, and notes where it came from."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._values: dict[str, ResolvedValue] = {}

    @property
    def values(self) -> tuple[ResolvedValue, ...]:
        return tuple(self._values.values())

    def is_given(self, path: str) -> bool:
        return path in self._given

    def take(self, path: str, otherwise: Given, source: str = "", given_as: str = "") -> Given:
        """Return what the user gave, else the other value; that is a default if no source is named.

        `given_as` is the user's path where it is another than ours.
        """
        place = given_as or path
        if place in self._given:
            return cast(Given, self._note(ResolvedValue(path, self._given[place], Origin.GIVEN, given_as)))
        origin = Origin.COMPUTED if source else Origin.DEFAULT
        return cast(Given, self._note(ResolvedValue(path, otherwise, origin, source)))

    def derive(self, path: str, value: Given, source: str) -> Given:
        """Note a value that nobody can give."""
        return cast(Given, self._note(ResolvedValue(path, value, Origin.COMPUTED, source)))

    def _note(self, value: ResolvedValue) -> Any:
        self._values[value.path] = value
        return value.value


def nested(values: tuple[ResolvedValue, ...]) -> dict[str, Any]:
    """Put values into one tree by the parts of their paths, as in a file."""
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
