"""Links, addresses and routes of one network namespace. The only module that uses pyroute2.

pyroute2's `NetNS` forks a process per namespace; here a thread enters the namespace and opens the socket, which takes a
few milliseconds. A veth pair is created with its peer already in the other namespace.
"""

import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from umbilical.fault import LabError
from umbilical.host import namespaces
from umbilical.lab.topology import IpAddress, IpInterface, IpNetwork

Result = TypeVar("Result")
# linux/if_addr.h: skip duplicate address detection, which takes a second.
IFA_F_NODAD: Final = 2
# linux/if.h: IFNAMSIZ without the final zero.
NAME_LENGTH: Final = 15
RT_TABLE_MAIN: Final = 254
# linux/neighbour.h: static entries (NOARP, PERMANENT).
NUD_GIVEN: Final = 0x40 | 0x80
MODULES_REMEDY: Final = (
    "load kernel modules: modprobe --all veth bridge nf_tables nft_masq nft_reject_inet nft_fib_inet nft_numgen"
)
FAMILY: Final = {4: socket.AF_INET, 6: socket.AF_INET6}


@dataclass(frozen=True)
class Link:
    index: int
    name: str
    is_up: bool
    has_carrier: bool
    """Whether the other end is up too."""


class Netlink:
    """A netlink socket in the namespace of the thread that opened it."""

    def __init__(self) -> None:
        # Not at the top: the import takes 0.25 s, and most commands do not need it.
        from pyroute2 import IPRoute  # type: ignore[import-untyped]

        self._route: Any = IPRoute()

    def __enter__(self) -> "Netlink":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._route.close()

    def links(self) -> list[Link]:
        return [
            Link(link["index"], link.get("ifname"), link["state"] == "up", bool(link.get("carrier")))
            for link in self._route.get_links()
        ]

    def link(self, name: str) -> Link | None:
        return next((link for link in self.links() if link.name == name), None)

    def add_bridge(self, name: str, hardware_address: str | None = None) -> None:
        """Create a bridge that forwards at once, without multicast snooping."""
        own = {"address": hardware_address} if hardware_address else {}
        with _told(f"create the bridge {name}"):
            self._route.link(
                "add", ifname=name, kind="bridge", br_stp_state=0, br_forward_delay=0, br_mcast_snooping=0, **own
            )

    def add_veth(self, name: str, peer: str, peer_namespace: Path) -> None:
        """Create a veth pair: `name` in this namespace, `peer` in the other."""
        with _told(f"link {name} with {peer} of {peer_namespace.name}"):
            descriptor = os.open(peer_namespace, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._route.link("add", ifname=name, kind="veth", peer={"ifname": peer, "net_ns_fd": descriptor})
            finally:
                os.close(descriptor)

    def join_bridge(self, name: str, bridge: str) -> None:
        with _told(f"join {name} to {bridge}"):
            self._route.link("set", index=_index(name), master=_index(bridge))

    def set_link(self, name: str, *, up: bool) -> None:
        with _told(f"set {name} {'up' if up else 'down'}"):
            self._route.link("set", index=_index(name), state="up" if up else "down")

    def delete_link(self, name: str) -> None:
        """Remove a link; a missing one is fine."""
        found = self.link(name)
        if found is None:
            return
        with _told(f"remove {name}", errno.ENODEV):
            self._route.link("del", index=found.index)

    def add_address(self, name: str, address: IpInterface) -> None:
        flags = {"flags": IFA_F_NODAD} if address.version == 6 else {}
        with _told(f"add {address} to {name}"):
            self._route.addr(
                "add", index=_index(name), address=str(address.ip), prefixlen=address.network.prefixlen, **flags
            )

    def addresses(self, name: str) -> list[str]:
        """Return the addresses of a link, like `10.0.0.1/24`, without link-local ones."""
        entries = self._route.get_addr(index=_index(name))
        # Scope 0 is global: linux/rtnetlink.h.
        return [f"{entry.get('address')}/{entry['prefixlen']}" for entry in entries if entry["scope"] == 0]

    def set_route(self, destination: IpNetwork, via: IpAddress) -> None:
        """Add or replace the route to a network through a neighbour."""
        # An IPv4Interface is also an address in Python, and prints its prefix length.
        neighbour = str(via).partition("/")[0]
        with _told(f"route {destination} via {neighbour}"):
            self._route.route("replace", dst=str(destination), gateway=neighbour)

    def delete_route(self, destination: IpNetwork) -> None:
        """Remove a route; a missing one is fine."""
        # The error for a missing route differs between IPv4, IPv6, and the IPv6 default route.
        with _told(f"remove the route to {destination}", errno.ESRCH, errno.ENOENT):
            self._route.route("del", dst=str(destination))

    def routes(self) -> dict[str, str]:
        """Return the routes through neighbours: network and neighbour."""
        entries = [entry for entry in self._route.get_routes(table=RT_TABLE_MAIN) if entry.get("gateway")]
        return {_destination(entry): entry.get("gateway") for entry in entries}

    def forget_neighbours(self, name: str) -> None:
        """Flush the neighbour table: a failed lookup is cached for seconds."""
        index = _index(name)
        for version in FAMILY.values():
            for entry in self._route.get_neighbours(family=version, ifindex=index):
                if not entry["state"] & NUD_GIVEN:
                    self._forget(version, index, entry.get("dst"))

    def _forget(self, family: int, index: int, address: str) -> None:
        with _told(f"forget the neighbour {address}", errno.ENOENT):
            self._route.neigh("del", family=family, ifindex=index, dst=address)


def create_namespace(path: Path) -> None:
    """Create a network namespace at a free path. Raises LabError: the kernel refused; nothing is left behind."""
    try:
        namespaces.create_network(path)
    except OSError as error:
        why = error.strerror or str(error)
        raise LabError(
            "UMB818", f"failed to create the network namespace {path.name}", why, _remedy(error.errno)
        ) from error


def inside(namespace: Path, call: Callable[[Netlink], Result]) -> Result:
    """Open a netlink socket in another namespace."""

    def converse() -> Result:
        with Netlink() as netlink:
            return call(netlink)

    return namespaces.in_network(namespace, converse)


def _index(name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError as error:
        # The C library's constant differs from the kernel's.
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV)) from error


def _destination(entry: Any) -> str:
    anything = "0.0.0.0" if ":" not in entry.get("gateway") else "::"
    return f"{entry.get('dst') or anything}/{entry['dst_len']}"


@contextmanager
def _told(what: str, *fine: int) -> Iterator[None]:
    """Turn a kernel error into LabError with the step's name; ignore errors that mean nothing was left to do."""
    from pyroute2.netlink.exceptions import NetlinkError  # type: ignore[import-untyped]

    try:
        yield
    except (NetlinkError, OSError) as error:
        number = error.code if isinstance(error, NetlinkError) else error.errno
        if number in fine:
            return
        raise LabError("UMB818", f"failed to {what}", os.strerror(number or 0), _remedy(number)) from error


def _remedy(number: int | None) -> str:
    if number == errno.EOPNOTSUPP:
        return MODULES_REMEDY
    if number == errno.ENOSPC:
        return "raise the limit: sysctl user.max_net_namespaces"
    if number in {errno.EPERM, errno.EACCES}:
        return "run it in a network namespace of your own, like that of `umbilical lab up`"
    return "umbilical lab down, then umbilical lab up"
