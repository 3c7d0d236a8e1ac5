"""One row of the certificate table, and the names and addresses that serving certificates contain."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.pki.control_plane_set import NODE, PkiKind
from umbilical.pki.profiles import IpAddress, KeyType, Profile, Usage, split_names

SERVER: Final = (Usage.SERVER,)
CLIENT: Final = (Usage.CLIENT,)
BOTH: Final = (Usage.SERVER, Usage.CLIENT)
APISERVER: Final = ("system:kube-apiserver", "kube-master")
PROXY: Final = ("system:kube-apiserver-proxy", "kube-master")
SERVER_CA: Final = Bundle.SERVER_CA.value
CLIENT_CA: Final = Bundle.CLIENT_CA.value


class Scope(Enum):
    """The profiles that have the certificate."""

    BOTH = "both"
    OPENSHIFT = "openshift"
    KUBERNETES = "kubernetes"


class Life(Enum):
    TEN_YEARS = 3650
    FIVE_YEARS = 1825
    THREE_YEARS = 1095
    YEAR = 365
    SHORT = 0
    """certificates.shortHours. OpenShift's operators renew it in time; in the kubernetes profile nothing does."""


class CertificateNames(Enum):
    NONE = "none"
    LOCALHOST = "localhost"
    SERVICE = "service"
    """Names of the Service, and all addresses: clients that dial an address send no SNI and get this certificate."""
    LOAD_BALANCER = "load-balancer"
    INTERNAL_LOAD_BALANCER = "internal-load-balancer"
    MACHINE_CONFIG = "machine-config"
    BOOTSTRAP = "bootstrap"
    ETCD = "etcd"


@dataclass(frozen=True)
class RowText:
    what: str
    readers: str
    without: str
    installer: str


@dataclass(frozen=True)
class CertificateRow:
    id: str
    """Stem of its file names in `tls/`."""
    kind: PkiKind
    common_name: str
    words: RowText
    organizations: tuple[str, ...] = ()
    signer: str = ""
    """Row id of its signer; empty: self-signed."""
    usages: tuple[Usage, ...] = ()
    names: CertificateNames = CertificateNames.NONE
    life: Life = Life.TEN_YEARS
    scope: Scope = Scope.BOTH
    verified_by: tuple[str, ...] = ()
    """Bundles or signers, each of which alone must verify it."""
    node: str = ""
    """The node it belongs to; set by `for_node`."""

    @property
    def public_file(self) -> str:
        return f"{self.id}.{'pub' if self.kind is PkiKind.KEY else 'crt'}"

    @property
    def key_file(self) -> str:
        return f"{self.id}.key"

    def for_node(self, node: str) -> "CertificateRow":
        return replace(
            self, id=self.id.replace(NODE, node), common_name=self.common_name.replace(NODE, node), node=node
        )


def signer(id_: str, life: Life, *words: str, scope: Scope = Scope.BOTH) -> CertificateRow:
    """`words` are the fields of `RowText` in order, here and in all functions that make rows."""
    return CertificateRow(id_, PkiKind.AUTHORITY, id_, RowText(*words), life=life, scope=scope)


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
    row = CertificateRow(id_, PkiKind.LEAF, name, RowText(*words), groups, signed_by, CLIENT, verified_by=(trust,))
    return replace(row, life=life, scope=scope)


LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_SERVICE_ENDINGS: Final = ("", ".default", ".default.svc", ".default.svc.cluster.local")
_ETCD_SERVICES: Final = tuple(
    f"etcd.{namespace}.svc{ending}"
    for namespace in ("kube-system", "openshift-etcd")
    for ending in ("", ".cluster.local")
)


@dataclass(frozen=True)
class ControlPlaneNode:
    """The bootstrap node or a master."""

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
    """Address of the Service `kubernetes`."""
    bootstrap: ControlPlaneNode
    masters: tuple[ControlPlaneNode, ...]

    @property
    def members(self) -> tuple[ControlPlaneNode, ...]:
        return (self.bootstrap, *self.masters)


def profile(row: CertificateRow, names: HardwayNames, key_type: KeyType) -> Profile:
    """Describe the certificate of a row."""
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
    # 127.0.0.1 too: a client that dials it as an address gets this certificate, not the one for localhost.
    return (*inside, names.service_ip, names.api_vip, *(one.address for one in names.members), *LOCAL[1:])


def _etcd(row: CertificateRow, names: HardwayNames) -> Iterable[str | IpAddress]:
    node = next(one for one in names.members if one.id == row.node)
    services = _ETCD_SERVICES if names.scope is Scope.OPENSHIFT else ()
    return (LOCAL[0], node.name, *services, *LOCAL[1:], node.address)
