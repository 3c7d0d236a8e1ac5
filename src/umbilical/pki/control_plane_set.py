"""The certificates of a control plane: one table of who signs what for whom, and the set that is made from it.

Every signer signs itself: OpenSSL and Python trust no intermediate alone. File names are those that kubeadm made usual.
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
from umbilical.pki.profiles import Backend, KeyType, Profile, Signer, Usage, split_names, usable_addresses

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

TWO_DAYS: Final = timedelta(hours=48)
"""A day is what an installer gives; what is made the evening before must still be good in the morning."""
MASTERS: Final = "system:masters"
NODE: Final = "{node}"
"""Stands for a node's name in rows that are there once for each node."""
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_API_NAMES: Final = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_BOTH: Final = (Usage.SERVER, Usage.CLIENT)


class Kind(Enum):
    AUTHORITY = "authority"
    LEAF = "leaf"
    KEY = "key"
    """A key and its public half, without a certificate: what signs tokens."""


class Names(Enum):
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
    """Carried inside a kubeconfig, so no file of its own."""


@dataclass(frozen=True)
class Row:
    id: str
    kind: Kind
    file: str
    """Below the PKI directory, without its ending."""
    held_by: tuple[Consumer, ...] = ()
    """They get the private half too."""
    trusted_by: tuple[Consumer, ...] = ()
    """They get the public half alone."""
    common_name: str = ""
    organizations: tuple[str, ...] = ()
    signer: str = ""
    """The id of an authority; empty: itself."""
    usages: tuple[Usage, ...] = ()
    names: Names = Names.NONE
    lifetime: timedelta | None = None
    """None: as long as the whole set."""
    node: str = ""
    """Whose it is, once a row for each node has been put in its place."""

    @property
    def public_file(self) -> str:
        return f"{self.file}.{'pub' if self.kind is Kind.KEY else 'crt'}"

    @property
    def key_file(self) -> str:
        return f"{self.file}.key"

    @property
    def is_per_node(self) -> bool:
        return NODE in self.id

    def for_node(self, node: str) -> "Row":
        """Put a node's name in. Its files keep their name: each lies on its own node."""
        return replace(
            self, id=self.id.replace(NODE, node), common_name=self.common_name.replace(NODE, node), node=node
        )


def _authority(id_: str, file: str, trusted_by: tuple[Consumer, ...], held_by: tuple[Consumer, ...] = ()) -> Row:
    return Row(id_, Kind.AUTHORITY, file, held_by, trusted_by, common_name=id_)


def _client(id_: str, file: str, signer: str, held_by: Consumer, common_name: str, *organizations: str) -> Row:
    return Row(id_, Kind.LEAF, file, (held_by,), (), common_name, organizations, signer=signer, usages=(Usage.CLIENT,))


def _server(
    id_: str,
    file: str,
    signer: str,
    held_by: Consumer,
    names: Names,
    common_name: str,
    *organizations: str,
    usages: tuple[Usage, ...] = (Usage.SERVER,),
) -> Row:
    return Row(
        id_, Kind.LEAF, file, (held_by,), (), common_name, organizations, signer=signer, usages=usages, names=names
    )


KUBERNETES: Final[tuple[Row, ...]] = (
    _authority(
        "kubernetes-ca",
        "ca",
        (Consumer.KUBE_APISERVER, Consumer.KUBELET),
        # It signs what kubelets ask for.
        (Consumer.CONTROLLER_MANAGER,),
    ),
    _authority("etcd-ca", "etcd/ca", (Consumer.ETCD, Consumer.KUBE_APISERVER)),
    _authority("front-proxy-ca", "front-proxy-ca", (Consumer.KUBE_APISERVER,)),
    Row("service-account", Kind.KEY, "sa", (Consumer.KUBE_APISERVER, Consumer.CONTROLLER_MANAGER)),
    # etcd dials its own client port with its serving certificate, for its gateway: it must be a client's as well.
    _server("etcd-server", "etcd/server", "etcd-ca", Consumer.ETCD, Names.ETCD, "etcd-server", usages=_BOTH),
    _server("etcd-peer", "etcd/peer", "etcd-ca", Consumer.ETCD, Names.ETCD, "etcd-peer", usages=_BOTH),
    _client("etcd-client", "apiserver-etcd-client", "etcd-ca", Consumer.KUBE_APISERVER, "system:etcd-client"),
    _server("apiserver", "apiserver", "kubernetes-ca", Consumer.KUBE_APISERVER, Names.API, "kube-apiserver"),
    # No binding has to exist before the first `kubectl logs`, and its holder could do everything anyway.
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
    # In `system:masters` as on the bootstrap node of an installer: a kube-apiserver that has just started knows no
    # roles yet, and both would be turned away until it does.
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
        Names.NODE,
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
    """What the certificates must cover; addresses of both families, as users write them."""

    node_ips: tuple[str, ...]
    """Of every node with a kube-apiserver."""
    service_ips: tuple[str, ...] = ()
    """Of the service `kubernetes`: see `first_addresses`."""
    etcd_ips: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Further names and addresses of the API: a load balancer's."""
    nodes: tuple[NodeNames, ...] = ()


@dataclass(frozen=True)
class PkiFile:
    path: str
    """Below the PKI directory."""
    content: bytes = field(repr=False)
    is_secret: bool


class ControlPlaneSet:
    """A made set: pairs by the ids of its table. For a row of kind KEY the "certificate" is the public key."""

    def __init__(self, rows: Sequence[Row], pairs: Mapping[str, KeyPair]) -> None:
        self.rows = tuple(rows)
        self._pairs = dict(pairs)

    def __getitem__(self, id_: str) -> KeyPair:
        return self._pairs[id_]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def files(self, *consumers: Consumer, node: str | None = None) -> list[PkiFile]:
        """Return what these need on a disk, each file once; what belongs to one node only if it is named."""
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
    table: Sequence[Row] = KUBERNETES,
    backend: Backend = Authority,
) -> ControlPlaneSet:
    """Make every row of the table, signers first. Raises PkiError: an address can be in no certificate."""
    alternative = _alternative_names(names)
    rows = list(_rows(table, names.nodes))
    maker = _Maker(backend, now, lifetime, key_type)
    # Refused before the first key is drawn, because drawing takes time.
    profiles = {row.id: _profile(row, alternative, key_type) for row in rows if row.kind is Kind.LEAF}
    return ControlPlaneSet(rows, {row.id: maker.make(row, profiles.get(row.id)) for row in rows})


def first_addresses(service_networks: Iterable[IpNetwork]) -> tuple[str, ...]:
    """Return the addresses that the service `kubernetes` gets: the first of every range."""
    return tuple(str(network[1]) for network in service_networks)


def bare_key(made: Signer) -> KeyPair:
    """Take the key alone, and its public half: a back end draws none without a certificate."""
    public = read_certificates(made.pair.certificate)[0].key.encoded
    return KeyPair(encode_public_key(public), made.pair.key)


class _Maker:
    def __init__(self, backend: Backend, now: datetime, lifetime: timedelta, key_type: KeyType) -> None:
        self._backend = backend
        self._now = now
        self._lifetime = lifetime
        self._key_type = key_type
        self._signers: dict[str, tuple[Signer, timedelta]] = {}

    def make(self, row: Row, profile: Profile | None) -> KeyPair:
        lifetime = row.lifetime or self._lifetime
        if profile is not None:
            signer, signers_own = self._signers[row.signer]
            # What outlives its signer cannot be verified anyway.
            return signer.issue(profile, self._now, min(lifetime, signers_own))
        made = self._backend.create(row.common_name or row.id, self._now, lifetime, self._key_type, row.organizations)
        if row.kind is Kind.KEY:
            return bare_key(made)
        self._signers[row.id] = (made, lifetime)
        return made.pair


def _rows(table: Iterable[Row], nodes: Sequence[NodeNames]) -> Iterator[Row]:
    for row in table:
        if row.is_per_node:
            yield from (row.for_node(node.name) for node in nodes)
        else:
            yield row


def _alternative_names(names: ControlPlaneNames) -> dict[tuple[Names, str], tuple[str, ...]]:
    found = {
        (Names.NONE, ""): (),
        (Names.API, ""): usable_addresses((*_LOCAL, *_API_NAMES, *names.service_ips, *names.node_ips, *names.names)),
        (Names.ETCD, ""): usable_addresses((*_LOCAL, *names.etcd_ips)),
    }
    for node in names.nodes:
        found[Names.NODE, node.name] = usable_addresses((node.name, *node.addresses))
    return found


def _profile(row: Row, alternative: Mapping[tuple[Names, str], tuple[str, ...]], key_type: KeyType) -> Profile:
    dns_names, addresses = split_names(alternative[row.names, row.node if row.names is Names.NODE else ""])
    return Profile(row.common_name, row.usages, row.organizations, dns_names, addresses, key_type)
