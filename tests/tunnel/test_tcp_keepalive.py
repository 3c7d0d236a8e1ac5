"""TCP keepalive on the real sockets of endpoints and of clients over TCP."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.support.fixture_types import Patch
from tests.support.in_process import Stage, echo
from tests.support.netns import Namespace, Network
from tests.support.tunnel_client import DialRefused, Tunnel, assert_echoes
from tests.support.tunnel_pair import Shape, TunnelPair, wait_until
from tests.support.tunnel_pki import TunnelPki

from umbilical.tunnel.channel import Channel
from umbilical.tunnel.dialing import KEEPALIVE_DELAY_SECONDS
from umbilical.tunnel.settings import Limits

OFF = (0, 0, 0, 0)


def options(sock: socket.socket) -> tuple[int, int, int, int]:
    """Keepalive, idle time, interval and probes; zeros if it is off."""
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE):
        return OFF
    idle = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
    interval = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
    return 1, idle, interval, sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)


def sockets(stage: Stage, port: int, *, theirs: bool) -> list[socket.socket]:
    """Sockets of the data plane that are connected to this port, or that were accepted on it."""

    def look() -> list[socket.socket]:
        channels = [each for each in stage.loop.data_plane._handlers.values() if isinstance(each, Channel)]
        found = []
        for channel in channels:
            name = channel.sock.getpeername() if theirs else channel.sock.getsockname()
            if isinstance(name, tuple) and name[1] == port:
                found.append(channel.sock)
        return found

    return stage.call(look)


@pytest.mark.parametrize(
    ("mode", "seconds", "expected"),
    [
        ("http-connect", 15.0, (1, 15, 15, 9)),
        ("grpc", 15.0, (1, 15, 15, 9)),
        ("http-connect", 0.2, (1, 1, 1, 9)),
        ("http-connect", 1e9, (1, 32_767, 32_767, 9)),
        ("grpc", 0.0, OFF),
    ],
)
def test_clients_over_tcp_and_endpoints_are_probed(
    stage: Stage, monkeypatch: Patch, mode: str, seconds: float, expected: tuple[int, int, int, int]
) -> None:
    limits = Limits(tcp_keepalive_seconds=seconds)
    server = stage.start_server(mode, tcp=True, limits=limits)
    agent = stage.start_agent(server.agent_port, limits=limits)
    server.wait_for_agents()
    agent.wait_until_ready()
    address = stage.endpoint().serve(echo).address
    tunnel = server.frontend.open(address)
    assert_echoes(tunnel)
    (client,) = sockets(stage, server.frontend.port, theirs=False)
    (endpoint,) = sockets(stage, int(address.rpartition(":")[2]), theirs=True)
    assert options(client) == expected
    for _ in range(2):
        stage.skip(KEEPALIVE_DELAY_SECONDS, monkeypatch)
    stage.eventually(lambda: options(endpoint) == expected)
    for sock in (client, endpoint):
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_default_is_that_of_go() -> None:
    assert Limits().tcp_keepalive_seconds == 15.0


ENDPOINT: Final = "198.18.5.2"
ECHO: Final = f"""
import socket
with socket.create_server(("{ENDPOINT}", 9000)) as listener:
    sock, _ = listener.accept()
    while octets := sock.recv(65536):
        sock.sendall(octets)
"""


@pytest.fixture
def network() -> Iterator[Network]:
    with Network("umbka") as network:
        yield network


def native_agent(pair: TunnelPair) -> list[str]:
    """The agent with our own flags: upstream has none for the interval."""
    pki, ports = pair.pki, pair.ports
    return [
        *(str(Path(sys.executable).parent / "umbilical"), "agent", "run", "--tcp-keepalive=1s"),
        *(f"--ca={pki.authority.certificate_file}", f"--cert={pki.agent.certificate}", f"--key={pki.agent.key}"),
        *(f"--server=127.0.0.1:{ports.agent}", f"--health=127.0.0.1:{ports.agent_health}"),
        f"--admin=127.0.0.1:{ports.agent_admin}",
    ]


def opened(pair: TunnelPair) -> Tunnel:
    """A tunnel to the endpoint, once everybody is there."""
    found: list[Tunnel] = []

    def attempt() -> bool:
        try:
            found.append(pair.frontend().open(f"{ENDPOINT}:9000"))
        except (DialRefused, OSError):
            return False
        return True

    wait_until(attempt, "a tunnel opens")
    return found[0]


@pytest.mark.root
@pytest.mark.real("ip")
def test_a_tunnel_ends_when_the_endpoints_host_dies_without_a_word(
    network: Network, tunnel_pki: TunnelPki, tmp_path: Path
) -> None:
    here, there = network.create("here"), network.create("there")
    _, far = network.link(here, "198.18.5.1/24", there, f"{ENDPOINT}/24")
    pair = TunnelPair(Shape(), tunnel_pki, tmp_path)
    pair.server.command = here.command(*pair.server.command)
    pair.agent.command = here.command(*native_agent(pair))
    endpoint = subprocess.Popen(there.command(sys.executable, "-c", ECHO))
    try:
        pair.server.start()
        pair.agent.start()
        tunnel = opened(pair)
        assert_echoes(tunnel)
        die(there, far)
        assert tunnel.receive(1) == b""
    finally:
        pair.stop()
        endpoint.kill()
        endpoint.wait(10)


def die(namespace: Namespace, link: str) -> None:
    """Its packets neither leave nor arrive any more, and no end of a connection is sent."""
    subprocess.run(["ip", "-n", namespace.name, "link", "set", link, "down"], check=True, timeout=30)
