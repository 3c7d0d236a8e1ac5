"""By which names the servers of a cluster that is built by hand are reached: from few facts to each one's list."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from umbilical.hardway.pki.row import Names, Row, Scope
from umbilical.pki.profiles import IpAddress, KeyType, Profile, split_names

LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_SERVICE_ENDINGS: Final = ("", ".default", ".default.svc", ".default.svc.cluster.local")
_ETCD_SERVICES: Final = tuple(
    f"etcd.{namespace}.svc{ending}"
    for namespace in ("kube-system", "openshift-etcd")
    for ending in ("", ".cluster.local")
)


@dataclass(frozen=True)
class Member:
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
    bootstrap: Member
    masters: tuple[Member, ...]

    @property
    def members(self) -> tuple[Member, ...]:
        return (self.bootstrap, *self.masters)


def profile(row: Row, names: HardwayNames, key_type: KeyType) -> Profile:
    """Describe the certificate of a row. What is reached by no name gets none."""
    dns_names, addresses = split_names(map(str, _reached_by(row, names)))
    return Profile(row.common_name, row.usages, row.organizations, dns_names, addresses, key_type)


def _reached_by(row: Row, names: HardwayNames) -> Iterable[str | IpAddress]:
    match row.names:
        case Names.LOCALHOST:
            return LOCAL
        case Names.SERVICE:
            return _service(names)
        case Names.LOAD_BALANCER:
            return (names.api_name, names.api_vip)
        case Names.INTERNAL_LOAD_BALANCER | Names.MACHINE_CONFIG:
            return (names.internal_api_name, names.api_vip)
        case Names.BOOTSTRAP:
            return (names.bootstrap.name, names.bootstrap.address)
        case Names.ETCD:
            return _etcd(row, names)
        case Names.NONE:
            return ()


def _service(names: HardwayNames) -> Iterable[str | IpAddress]:
    services = ("kubernetes", "openshift") if names.scope is Scope.OPENSHIFT else ("kubernetes",)
    inside = (f"{service}{ending}" for service in services for ending in _SERVICE_ENDINGS)
    # 127.0.0.1 too: it is dialled as an address as well, and then this certificate is shown and not localhost's.
    return (*inside, names.service_ip, names.api_vip, *(one.address for one in names.members), *LOCAL[1:])


def _etcd(row: Row, names: HardwayNames) -> Iterable[str | IpAddress]:
    node = next(one for one in names.members if one.id == row.node)
    services = _ETCD_SERVICES if names.scope is Scope.OPENSHIFT else ()
    return (LOCAL[0], node.name, *services, *LOCAL[1:], node.address)
