"""A node with the library on it, and a network around it that each test lays out by itself."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.netns import Network
from tests.support.scratch_node import Ended, ScratchNode

from umbilical.bootstrap.names import OWN
from umbilical.bootstrap.render.render import Certificates, render
from umbilical.bootstrap.spec import Shape, TunnelSpec, for_shape


class Machine:
    """A scratch node in a network namespace, with rendered files installed by `prepare`."""

    def __init__(self, network: Network, folder: Path) -> None:
        self._network = network
        self._lans = 0
        self.namespace = network.create("node")
        self.node = ScratchNode(folder, self.namespace)

    def nic(self, address: str, neighbour: str) -> str:
        """Add a network card with an address; something is at the other end. Return its name."""
        self._lans += 1
        return self._network.link(self.namespace, address, self._network.create(f"lan{self._lans}"), neighbour)[0]

    def ip(self, *arguments: str) -> None:
        subprocess.run(["ip", "-netns", self.namespace.name, *arguments], check=True, timeout=30)

    def route(self, via: str) -> None:
        self._network.route(self.namespace, "default", via)

    def prepare(self, spec: TunnelSpec | None = None, certificates: Certificates | None = None) -> None:
        self.node.install(render(spec or for_shape(Shape.OPENSHIFT), certificates=certificates))

    def call(self, *functions: str, kill_at: int | None = None) -> Ended:
        return self.node.run(caller(*functions), kill_at=kill_at)

    @property
    def address(self) -> str:
        return self.node.read("/opt/openshift/umbilical/node-ip").strip()


def caller(*functions: str) -> str:
    """Write a script that stands in bootkube.sh's place."""
    sources = ("/usr/local/bin/bootstrap-service-record.sh", "/usr/local/bin/release-image.sh", OWN.library)
    return "\n".join(["set -euoE pipefail", *(f". {path}" for path in sources), *functions, ""])


@pytest.fixture
def network() -> Iterator[Network]:
    with Network("umbsh") as network:
        yield network


@pytest.fixture
def machine(network: Network, tmp_path: Path) -> Machine:
    return Machine(network, tmp_path / "node")
