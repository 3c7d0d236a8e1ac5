"""Talk across a lab's networks from one test process: sockets are made inside a namespace and used from anywhere."""

import functools
import importlib
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.worlds import SCRATCH, World, run_in

from umbilical.host import namespaces
from umbilical.lab import network as pod_network
from umbilical.lab.network import LabNetwork
from umbilical.lab.topology import Family, IpAddress, IpInterface, Topology, plan_topology

# Once here rather than in every forked world: it takes a quarter of a second.
importlib.import_module("pyroute2")

PORT: Final = 8091
SECONDS: Final = 10.0
# Long enough for an answer across namespaces of one machine, short enough to be waited for in vain.
SILENT_SECONDS: Final = 0.4

Test = Callable[..., None]
WORLDS: Final = pytest.mark.parametrize("world", list(World), ids=lambda world: world.value)
# Every family in some world and every world with both: what is left out costs a minute and shows nothing new.
PLACES: Final = pytest.mark.parametrize(
    ("world", "family"),
    [(World.ROOT, Family.IPV4), (World.ROOT, Family.IPV6), (World.ORDINARY, Family.DUAL)],
    ids=["ipv4 as root", "ipv6 as root", "both as an ordinary user"],
)


def in_roots_world(test: Test) -> Test:
    """Run the test itself in a fresh world."""
    return functools.wraps(test)(lambda **arguments: run_in(World.ROOT, functools.partial(test, **arguments)))


def each_world(test: Test) -> Test:
    """Run the test itself in a fresh world of either kind, which is its first argument."""
    return WORLDS(_in_world(test))


def each_place(test: Test) -> Test:
    """The same, with the families that the lab has there."""
    return PLACES(_in_world(test))


def _in_world(test: Test) -> Test:
    def run(world: World, **arguments: Any) -> None:
        run_in(world, functools.partial(test, world=world, **arguments))

    return functools.wraps(test)(run)


@dataclass(frozen=True)
class Place:
    """A node or a pod: where it is, and what others call it."""

    namespace: Path
    addresses: tuple[IpAddress, ...]

    def address(self, version: int) -> str:
        return next(str(address) for address in self.addresses if address.version == version)


class Wires:
    """A lab's network in the scratch folder, with pods."""

    def __init__(
        self,
        family: Family = Family.IPV4,
        folder: str = "netns",
        masters: int = 2,
        workers: int = 0,
        topology: Topology | None = None,
    ) -> None:
        self.topology: Topology = topology or plan_topology(masters=masters, workers=workers, family=family)
        self.network = LabNetwork(self.topology, SCRATCH / folder)
        self.network.build()
        self._folder = SCRATCH / folder

    @property
    def versions(self) -> tuple[int, ...]:
        return self.topology.family.versions

    def node(self, name: str) -> Place:
        return Place(self.network.namespace(name), tuple(address.ip for address in self.topology.node(name).addresses))

    def pod(self, node: str, number: int = 2) -> Place:
        """Attach a pod as a runner on the node would."""
        planned = self.topology.node(node)
        addresses: list[IpInterface] = [
            ipaddress.ip_interface(f"{network[number]}/{network.prefixlen}") for network in planned.pod_networks
        ]
        path = self._folder / f"pod-{node}-{number}"
        gateways = [gateway.ip for gateway in planned.pod_gateways]
        namespaces.in_network(
            self.network.namespace(node), lambda: pod_network.attach_pod(path, f"veth-{number}", addresses, gateways)
        )
        return Place(path, tuple(address.ip for address in addresses))


def dial(place: Place, address: str, port: int = PORT, seconds: float = SECONDS) -> str:
    """Connect and hang up; say `connected`, or what the kernel said."""
    try:
        namespaces.in_network(place.namespace, lambda: socket.create_connection((address, port), seconds)).close()
    except OSError as error:
        return error.strerror or "silence"
    return "connected"


def listen(place: Place, version: int, port: int = PORT) -> socket.socket:
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    return namespaces.in_network(place.namespace, lambda: _server(family, port))


def talk(client: Place, server: Place, version: int) -> str:
    """Send a word each way over TCP; return the address that the server saw."""
    with listen(server, version) as listener:
        address = server.address(version)
        calling = namespaces.in_network(client.namespace, lambda: socket.create_connection((address, PORT), SECONDS))
        with calling:
            answering, seen = listener.accept()
            with answering:
                answering.settimeout(SECONDS)
                _exchange(calling, answering)
                return str(seen[0])


def _server(family: socket.AddressFamily, port: int) -> socket.socket:
    listener = socket.create_server(("", port), family=family)
    listener.settimeout(SECONDS)
    return listener


def _exchange(calling: socket.socket, answering: socket.socket) -> None:
    calling.sendall(b"question")
    assert answering.recv(64) == b"question"
    answering.sendall(b"answer")
    assert calling.recv(64) == b"answer"
