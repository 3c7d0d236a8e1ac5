"""How a row of the hard way's certificate table is written, and the names by which servers are reached."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.pki.control_plane_set import NODE, Kind
from umbilical.pki.profiles import IpAddress, KeyType, Profile, Usage, split_names

SERVER: Final = (Usage.SERVER,)
CLIENT: Final = (Usage.CLIENT,)
BOTH: Final = (Usage.SERVER, Usage.CLIENT)
APISERVER: Final = ("system:kube-apiserver", "kube-master")
PROXY: Final = ("system:kube-apiserver-proxy", "kube-master")
SERVER_CA: Final = Bundle.SERVER_CA.value
CLIENT_CA: Final = Bundle.CLIENT_CA.value


class Scope(Enum):
    """Clusters of which kind have it."""

    BOTH = "both"
    OPENSHIFT = "openshift"
    KUBERNETES = "kubernetes"


class Life(Enum):
    TEN_YEARS = 3650
    FIVE_YEARS = 1825
    THREE_YEARS = 1095
    YEAR = 365
    SHORT = 0
    """As the terms say. In OpenShift an operator replaces it before; in the kubernetes profile nobody does."""


class CertificateNames(Enum):
    NONE = "none"
    LOCALHOST = "localhost"
    SERVICE = "service"
    """From inside, and by any address: who dials an address says no name, and gets this certificate."""
    LOAD_BALANCER = "load-balancer"
    INTERNAL_LOAD_BALANCER = "internal-load-balancer"
    MACHINE_CONFIG = "machine-config"
    BOOTSTRAP = "bootstrap"
    ETCD = "etcd"


@dataclass(frozen=True)
class CertificateExplanation:
    what: str
    readers: str
    without: str
    installer: str


@dataclass(frozen=True)
class CertificateRow:
    id: str
    """Its files are called so, in `tls/`."""
    kind: Kind
    common_name: str
    words: CertificateExplanation
    organizations: tuple[str, ...] = ()
    signer: str = ""
    """The id of an authority; empty: itself."""
    usages: tuple[Usage, ...] = ()
    names: CertificateNames = CertificateNames.NONE
    life: Life = Life.TEN_YEARS
    scope: Scope = Scope.BOTH
    verified_by: tuple[str, ...] = ()
    """Who checks it does so with these, each alone: bundles, or the certificate of a signer."""
    node: str = ""
    """Whose it is, once a row for each node has been put in its place."""

    @property
    def public_file(self) -> str:
        return f"{self.id}.{'pub' if self.kind is Kind.KEY else 'crt'}"

    @property
    def key_file(self) -> str:
        return f"{self.id}.key"

    def for_node(self, node: str) -> "CertificateRow":
        return replace(
            self, id=self.id.replace(NODE, node), common_name=self.common_name.replace(NODE, node), node=node
        )


def signer(id_: str, life: Life, *words: str, scope: Scope = Scope.BOTH) -> CertificateRow:
    """`words` are those of `Words`, in its order; so in all functions that make rows."""
    return CertificateRow(id_, Kind.AUTHORITY, id_, CertificateExplanation(*words), life=life, scope=scope)


def client(
    id_: str,
    signed_by: str,
    life: Life,
    name: str,
    groups: tuple[str, ...],
    trust: str,
    *words: str,
    scope: Scope = Scope.BOTH,
) -> CertificateRow:
    told, verified_by = CertificateExplanation(*words), (trust,)
    return CertificateRow(
        id_, Kind.LEAF, name, told, groups, signed_by, CLIENT, life=life, scope=scope, verified_by=verified_by
    )


LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_SERVICE_ENDINGS: Final = ("", ".default", ".default.svc", ".default.svc.cluster.local")
_ETCD_SERVICES: Final = tuple(
    f"etcd.{namespace}.svc{ending}"
    for namespace in ("kube-system", "openshift-etcd")
    for ending in ("", ".cluster.local")
)


@dataclass(frozen=True)
class ControlPlaneNode:
    """A node with a control plane."""

    id: str
    name: str
    address: IpAddress


@dataclass(frozen=True)
class HardwayNames:
    scope: Scope
    api_name: str
    internal_api_name: str
    api_vip: IpAddress
    service_ip: IpAddress
    """Of the service `kubernetes`."""
    bootstrap: ControlPlaneNode
    masters: tuple[ControlPlaneNode, ...]

    @property
    def members(self) -> tuple[ControlPlaneNode, ...]:
        return (self.bootstrap, *self.masters)


def profile(row: CertificateRow, names: HardwayNames, key_type: KeyType) -> Profile:
    """Describe the certificate of a row. What is reached by no name gets none."""
    dns_names, addresses = split_names(map(str, _reached_by(row, names)))
    return Profile(row.common_name, row.usages, row.organizations, dns_names, addresses, key_type)


def _reached_by(row: CertificateRow, names: HardwayNames) -> Iterable[str | IpAddress]:
    match row.names:
        case CertificateNames.LOCALHOST:
            return LOCAL
        case CertificateNames.SERVICE:
            return _service(names)
        case CertificateNames.LOAD_BALANCER:
            return (names.api_name, names.api_vip)
        case CertificateNames.INTERNAL_LOAD_BALANCER | CertificateNames.MACHINE_CONFIG:
            return (names.internal_api_name, names.api_vip)
        case CertificateNames.BOOTSTRAP:
            return (names.bootstrap.name, names.bootstrap.address)
        case CertificateNames.ETCD:
            return _etcd(row, names)
        case CertificateNames.NONE:
            return ()


def _service(names: HardwayNames) -> Iterable[str | IpAddress]:
    services = ("kubernetes", "openshift") if names.scope is Scope.OPENSHIFT else ("kubernetes",)
    inside = (f"{service}{ending}" for service in services for ending in _SERVICE_ENDINGS)
    # 127.0.0.1 too: it is dialled as an address as well, and then this certificate is shown and not localhost's.
    return (*inside, names.service_ip, names.api_vip, *(one.address for one in names.members), *LOCAL[1:])


def _etcd(row: CertificateRow, names: HardwayNames) -> Iterable[str | IpAddress]:
    node = next(one for one in names.members if one.id == row.node)
    services = _ETCD_SERVICES if names.scope is Scope.OPENSHIFT else ()
    return (LOCAL[0], node.name, *services, *LOCAL[1:], node.address)
