"""The certificates of a control plane: one table of signers, holders and usages, and the set made from it.

Every CA is self-signed: OpenSSL and Python do not trust an intermediate CA alone. File names are kubeadm's.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from umbilical.pki.authority import Authority
from umbilical.pki.certificate import read_certificates
from umbilical.pki.pem import KeyPair, encode_public_key
from umbilical.pki.profiles import Backend, CertificateSigner, KeyType, Profile, Usage, split_names, usable_addresses

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

TWO_DAYS: Final = timedelta(hours=48)
"""OpenShift's installer uses 24 h; certificates made in the evening must still be valid the next day."""
MASTERS: Final = "system:masters"
NODE: Final = "{node}"
"""Placeholder for the node's name in rows that exist once per node."""
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_API_NAMES: Final = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_BOTH: Final = (Usage.SERVER, Usage.CLIENT)


class PkiKind(Enum):
    AUTHORITY = "authority"
    LEAF = "leaf"
    KEY = "key"
    """A key pair without a certificate: it signs tokens."""


class NameSet(Enum):
    NONE = "none"
    API = "api"
    ETCD = "etcd"
    NODE = "node"


class Consumer(Enum):
    ETCD = "etcd"
    KUBE_APISERVER = "kube-apiserver"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"
    KUBELET = "kubelet"
    KUBECONFIG = "kubeconfig"
    """Embedded in a kubeconfig; has no file."""


@dataclass(frozen=True)
class PkiRow:
    id: str
    kind: PkiKind
    file: str
    """Path below the PKI directory, without extension."""
    held_by: tuple[Consumer, ...] = ()
    """Consumers that get the private key too."""
    trusted_by: tuple[Consumer, ...] = ()
    """Consumers that get the public part only."""
    common_name: str = ""
    organizations: tuple[str, ...] = ()
    signer: str = ""
    """Id of the signing CA; empty: self-signed."""
    usages: tuple[Usage, ...] = ()
    names: NameSet = NameSet.NONE
    lifetime: timedelta | None = None
    """None: the lifetime of the set."""
    node: str = ""
    """Node name in a row made by `for_node`; else empty."""

    @property
    def public_file(self) -> str:
        return f"{self.file}.{'pub' if self.kind is PkiKind.KEY else 'crt'}"

    @property
    def key_file(self) -> str:
        return f"{self.file}.key"

    @property
    def is_per_node(self) -> bool:
        return NODE in self.id

    def for_node(self, node: str) -> "PkiRow":
        """Return the row for one node. File names do not change: each node has its own directory."""
        return replace(
            self, id=self.id.replace(NODE, node), common_name=self.common_name.replace(NODE, node), node=node
        )


def _authority(id_: str, file: str, trusted_by: tuple[Consumer, ...], held_by: tuple[Consumer, ...] = ()) -> PkiRow:
    return PkiRow(id_, PkiKind.AUTHORITY, file, held_by, trusted_by, common_name=id_)


def _client(id_: str, file: str, signer: str, held_by: Consumer, common_name: str, *organizations: str) -> PkiRow:
    return PkiRow(id_, PkiKind.LEAF, file, (held_by,), (), common_name, organizations, signer, (Usage.CLIENT,))


def _server(
    id_: str,
    file: str,
    signer: str,
    held_by: Consumer,
    names: NameSet,
    common_name: str,
    *organizations: str,
    usages: tuple[Usage, ...] = (Usage.SERVER,),
) -> PkiRow:
    return PkiRow(id_, PkiKind.LEAF, file, (held_by,), (), common_name, organizations, signer, usages, names)


KUBERNETES: Final[tuple[PkiRow, ...]] = (
    _authority(
        "kubernetes-ca",
        "ca",
        (Consumer.KUBE_APISERVER, Consumer.KUBELET),
        # It signs the certificate requests of kubelets.
        (Consumer.CONTROLLER_MANAGER,),
    ),
    _authority("etcd-ca", "etcd/ca", (Consumer.ETCD, Consumer.KUBE_APISERVER)),
    _authority("front-proxy-ca", "front-proxy-ca", (Consumer.KUBE_APISERVER,)),
    PkiRow("service-account", PkiKind.KEY, "sa", (Consumer.KUBE_APISERVER, Consumer.CONTROLLER_MANAGER)),
    # etcd's gateway dials its own client port with the serving certificate, so it needs clientAuth too.
    _server("etcd-server", "etcd/server", "etcd-ca", Consumer.ETCD, NameSet.ETCD, "etcd-server", usages=_BOTH),
    _server("etcd-peer", "etcd/peer", "etcd-ca", Consumer.ETCD, NameSet.ETCD, "etcd-peer", usages=_BOTH),
    _client("etcd-client", "apiserver-etcd-client", "etcd-ca", Consumer.KUBE_APISERVER, "system:etcd-client"),
    _server("apiserver", "apiserver", "kubernetes-ca", Consumer.KUBE_APISERVER, NameSet.API, "kube-apiserver"),
    # With system:masters, `kubectl logs` works before any RBAC binding exists; kube-apiserver has all rights anyway.
    _client(
        "apiserver-kubelet-client",
        "apiserver-kubelet-client",
        "kubernetes-ca",
        Consumer.KUBE_APISERVER,
        "system:kube-apiserver",
        MASTERS,
    ),
    _client(
        "front-proxy-client", "front-proxy-client", "front-proxy-ca", Consumer.KUBE_APISERVER, "front-proxy-client"
    ),
    _client("admin", "admin", "kubernetes-ca", Consumer.KUBECONFIG, "system:admin", MASTERS),
    # In system:masters, as on an installer's bootstrap node: until kube-apiserver has created its default roles, it
    # would refuse both.
    _client(
        "controller-manager",
        "controller-manager",
        "kubernetes-ca",
        Consumer.KUBECONFIG,
        "system:kube-controller-manager",
        MASTERS,
    ),
    _client("scheduler", "scheduler", "kubernetes-ca", Consumer.KUBECONFIG, "system:kube-scheduler", MASTERS),
    _client("kube-proxy", "kube-proxy", "kubernetes-ca", Consumer.KUBECONFIG, "system:kube-proxy"),
    _client(
        f"kubelet-client:{NODE}",
        "kubelet-client",
        "kubernetes-ca",
        Consumer.KUBECONFIG,
        f"system:node:{NODE}",
        "system:nodes",
    ),
    _server(
        f"kubelet:{NODE}",
        "kubelet",
        "kubernetes-ca",
        Consumer.KUBELET,
        NameSet.NODE,
        f"system:node:{NODE}",
        "system:nodes",
    ),
)


@dataclass(frozen=True)
class NodeNames:
    """A node with a kubelet."""

    name: str
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class ControlPlaneNames:
    """Names and addresses that the certificates must cover, IPv4 or IPv6, as users write them."""

    node_ips: tuple[str, ...]
    """Addresses of every node with a kube-apiserver."""
    service_ips: tuple[str, ...] = ()
    """Addresses of the service `kubernetes`: see `first_addresses`."""
    etcd_ips: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Further names and addresses of the API, e.g. of a load balancer."""
    nodes: tuple[NodeNames, ...] = ()


@dataclass(frozen=True)
class PkiFile:
    path: str
    """Path below the PKI directory."""
    content: bytes = field(repr=False)
    is_secret: bool


class ControlPlaneSet:
    """Key pairs by row id. For a row of kind KEY, the "certificate" is the public key."""

    def __init__(self, rows: Sequence[PkiRow], pairs: Mapping[str, KeyPair]) -> None:
        self.rows = tuple(rows)
        self._pairs = dict(pairs)

    def __getitem__(self, id_: str) -> KeyPair:
        return self._pairs[id_]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def files(self, *consumers: Consumer, node: str | None = None) -> list[PkiFile]:
        """Return the files that these consumers need; files of one node only for that `node`."""
        wanted = set(consumers)
        found: list[PkiFile] = []
        for row in self.rows:
            if row.node and row.node != node:
                continue
            pair = self._pairs[row.id]
            if wanted.intersection(row.held_by + row.trusted_by):
                found.append(PkiFile(row.public_file, pair.certificate, is_secret=False))
            if wanted.intersection(row.held_by):
                found.append(PkiFile(row.key_file, pair.key, is_secret=True))
        return found


def make_control_plane_set(
    names: ControlPlaneNames,
    now: datetime,
    lifetime: timedelta = TWO_DAYS,
    key_type: KeyType = KeyType.RSA_2048,
    *,
    table: Sequence[PkiRow] = KUBERNETES,
    backend: Backend = Authority,
) -> ControlPlaneSet:
    """Make every row of the table, CAs first. Raises PkiError: an address is not valid in a certificate."""
    alternative = _alternative_names(names)
    rows = list(_rows(table, names.nodes))
    maker = _Maker(backend, now, lifetime, key_type)
    # Before the first key is generated, so that an error does not cost that time.
    profiles = {row.id: _profile(row, alternative, key_type) for row in rows if row.kind is PkiKind.LEAF}
    return ControlPlaneSet(rows, {row.id: maker.make(row, profiles.get(row.id)) for row in rows})


def first_addresses(service_networks: Iterable[IpNetwork]) -> tuple[str, ...]:
    """Return the addresses of the service `kubernetes`: the first of every range."""
    return tuple(str(network[1]) for network in service_networks)


def bare_key(made: CertificateSigner) -> KeyPair:
    """Return only the key and its public half: a back end makes keys with certificates only."""
    public = read_certificates(made.pair.certificate)[0].key.encoded
    return KeyPair(encode_public_key(public), made.pair.key)


class _Maker:
    def __init__(self, backend: Backend, now: datetime, lifetime: timedelta, key_type: KeyType) -> None:
        self._backend = backend
        self._now = now
        self._lifetime = lifetime
        self._key_type = key_type
        self._signers: dict[str, tuple[CertificateSigner, timedelta]] = {}

    def make(self, row: PkiRow, profile: Profile | None) -> KeyPair:
        lifetime = row.lifetime or self._lifetime
        if profile is not None:
            signer, signers_own = self._signers[row.signer]
            # A certificate cannot be verified after its CA has expired.
            return signer.issue(profile, self._now, min(lifetime, signers_own))
        made = self._backend.create(row.common_name or row.id, self._now, lifetime, self._key_type, row.organizations)
        if row.kind is PkiKind.KEY:
            return bare_key(made)
        self._signers[row.id] = (made, lifetime)
        return made.pair


def _rows(table: Iterable[PkiRow], nodes: Sequence[NodeNames]) -> Iterator[PkiRow]:
    for row in table:
        if row.is_per_node:
            yield from (row.for_node(node.name) for node in nodes)
        else:
            yield row


def _alternative_names(names: ControlPlaneNames) -> dict[tuple[NameSet, str], tuple[str, ...]]:
    found = {
        (NameSet.NONE, ""): (),
        (NameSet.API, ""): usable_addresses((*_LOCAL, *_API_NAMES, *names.service_ips, *names.node_ips, *names.names)),
        (NameSet.ETCD, ""): usable_addresses((*_LOCAL, *names.etcd_ips)),
    }
    for node in names.nodes:
        found[NameSet.NODE, node.name] = usable_addresses((node.name, *node.addresses))
    return found


def _profile(row: PkiRow, alternative: Mapping[tuple[NameSet, str], tuple[str, ...]], key_type: KeyType) -> Profile:
    dns_names, addresses = split_names(alternative[row.names, row.node if row.names is NameSet.NODE else ""])
    return Profile(row.common_name, row.usages, row.organizations, dns_names, addresses, key_type)
