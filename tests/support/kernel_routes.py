"""Links, addresses and routes of this thread's network namespace by netlink: tests need no program `ip` for them."""

import errno
from pathlib import Path
from typing import Any, Final

from umbilical.lab.netlink import Netlink

_OWN: Final = Path("/proc/thread-self/ns/net")


def swallow(gateway: str, address: str) -> None:
    """Bring loopback up and make a default route by a neighbour that never answers; `address` is ours beside it."""
    with Netlink() as netlink:
        for name in ("lo", "hole0", "hole1"):
            if name == "hole0":
                netlink.add_veth("hole0", "hole1", _OWN)
            netlink.set_link(name, up=True)
    with _route() as route:
        index = route.link_lookup(ifname="hole0")[0]
        host, _, width = address.partition("/")
        route.addr("add", index=index, address=host, prefixlen=int(width))
        # 0x80: permanent (linux/neighbour.h), so nobody asks who has it.
        route.neigh("add", dst=gateway, lladdr="02:00:00:00:00:fe", ifindex=index, state=0x80)
        route.route("add", dst="default", gateway=gateway)


def add_to_loopback(address: str) -> None:
    with _route() as route:
        route.addr("add", index=route.link_lookup(ifname="lo")[0], address=address, prefixlen=32)


def remove_from_loopback(address: str) -> None:
    with _route() as route:
        route.addr("del", index=route.link_lookup(ifname="lo")[0], address=address, prefixlen=32)


def make_unreachable(network: str) -> None:
    """Have every dial to a network answered at once; doing it twice is fine."""
    with _route() as route:
        route.route("replace", dst=network, type="unreachable")


def forget(network: str) -> None:
    """Undo `make_unreachable`; one that is gone is fine."""
    from pyroute2.netlink.exceptions import NetlinkError  # type: ignore[import-untyped]

    with _route() as route:
        try:
            route.route("del", dst=network, type="unreachable")
        except NetlinkError as error:
            if error.code != errno.ESRCH:
                raise


def _route() -> Any:
    from pyroute2 import IPRoute  # type: ignore[import-untyped]

    return IPRoute()
