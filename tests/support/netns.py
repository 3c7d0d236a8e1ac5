"""Network namespaces of our own: links between them, routes, an address that swallows packets, a private resolver.

By the `ip` and `nsenter` programs: each step is a command that a reader can repeat by hand. Nothing ever appears
in the namespace we run in, so no test can disturb the machine's own network. Needs root (CAP_NET_ADMIN).
"""

import ipaddress
import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from umbilical.fault import HostError
from umbilical.host.processes import run

FOLDER: Final = Path("/run/netns")
# Locally administered and used by nobody: frames sent to it reach a veth whose other end drops them.
SILENT_NEIGHBOUR: Final = "02:00:00:00:00:fe"
IP_SECONDS: Final = 30.0
# Unique within the process over all Network objects; across processes the pid in the name is.
_numbers: Final = itertools.count(1)


@dataclass(frozen=True)
class Namespace:
    """One named network namespace."""

    name: str

    @property
    def path(self) -> Path:
        return FOLDER / self.name

    def command(self, *command: str | os.PathLike[str]) -> list[str]:
        """Say how to run a program inside. It replaces nsenter, so the child's pid is the program's own.

        Not `ip netns exec`: that remounts /sys and hides the cgroups that container runtimes need.
        """
        return ["nsenter", f"--net={self.path}", "--", *(os.fspath(part) for part in command)]


class Network:
    """Namespaces and the links between them; leaving the `with` block removes all of it."""

    def __init__(self, prefix: str = "umb") -> None:
        self._stem = f"{prefix}-{os.getpid()}-{next(_numbers)}"
        self._prefix = prefix
        self._namespaces: list[Namespace] = []
        self._links = itertools.count()

    def __enter__(self) -> "Network":
        _remove_orphans(self._prefix)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def create(self, label: str) -> Namespace:
        """Make a namespace with its loopback up."""
        namespace = Namespace(f"{self._stem}-{label}")
        _ip("netns", "add", namespace.name)
        self._namespaces.append(namespace)
        _ip_in(namespace, "link", "set", "lo", "up")
        return namespace

    def link(self, left: Namespace, left_address: str, right: Namespace, right_address: str) -> tuple[str, str]:
        """Join two namespaces by a veth pair; addresses are written `10.0.0.1/24`. Return the interface names."""
        number = next(self._links)
        left_name, right_name = f"veth{number}a", f"veth{number}b"
        _ip("link", "add", left_name, "netns", left.name, "type", "veth", "peer", right_name, "netns", right.name)
        for namespace, name, address in ((left, left_name, left_address), (right, right_name, right_address)):
            # An IPv6 address is tentative for a second otherwise, and binding to it fails meanwhile.
            quick = ["nodad"] if ":" in address else []
            _ip_in(namespace, "address", "add", address, "dev", name, *quick)
            _ip_in(namespace, "link", "set", name, "up")
        return left_name, right_name

    def route(self, namespace: Namespace, destination: str, via: str) -> None:
        """Send a network (`10.0.0.0/8`, or `default`) through a neighbour."""
        _ip_in(namespace, "route", "add", destination, "via", via)

    def swallow(self, namespace: Namespace, network: str = "198.18.0.0/24", address: str = "198.18.0.254") -> None:
        """Give the namespace a default route through `address`, where packets vanish without an answer.

        A static neighbour entry keeps the kernel from asking for the address and then reporting "no route".
        """
        hole = self.create("hole")
        own = next(ipaddress.ip_network(network).hosts())
        width = network.partition("/")[2]
        number = next(self._links)
        near, far = f"veth{number}a", f"veth{number}b"
        _ip("link", "add", near, "netns", namespace.name, "type", "veth", "peer", far, "netns", hole.name)
        _ip_in(namespace, "address", "add", f"{own}/{width}", "dev", near)
        _ip_in(namespace, "link", "set", near, "up")
        _ip_in(hole, "link", "set", far, "up")
        _ip_in(namespace, "neighbour", "add", address, "lladdr", SILENT_NEIGHBOUR, "dev", near, "nud", "permanent")
        self.route(namespace, "default", address)

    def remove(self) -> None:
        """Delete every namespace made here; links go with them. Doing it twice is fine."""
        while self._namespaces:
            _ip("netns", "delete", self._namespaces.pop().name)


def isolated_resolver(resolv_conf: Path, command: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Say how to run a program that sees `resolv_conf` as its /etc/resolv.conf, and nobody else does.

    A mount namespace of its own; to run it in a network namespace too, wrap the result by `Namespace.command`.
    """
    script = 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'
    private = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", script, "sh"]
    return [*private, os.fspath(resolv_conf), *(os.fspath(part) for part in command)]


def _ip(*arguments: str) -> str:
    return run(["ip", *arguments], IP_SECONDS)


def _ip_in(namespace: Namespace, *arguments: str) -> str:
    return _ip("-netns", namespace.name, *arguments)


def _remove_orphans(prefix: str) -> None:
    """Delete what a killed run left behind: the pid in the name belongs to nobody any more."""
    if not FOLDER.is_dir():
        return
    ours = re.compile(rf"{re.escape(prefix)}-(\d+)-\d+-.+")
    for path in FOLDER.iterdir():
        found = ours.fullmatch(path.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            _delete_orphan(path.name)


def _delete_orphan(name: str) -> None:
    try:
        _ip("netns", "delete", name)
    except HostError:
        # Another run that starts just now may have swept it first.
        if (FOLDER / name).exists():
            raise
