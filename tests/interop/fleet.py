"""Several servers behind one address, and agents that find them: what the tests of high availability run on."""

import random
import select
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.interop.endpoints import echo, endpoint
from tests.support.tunnel_client import Tunnel, receive_exactly
from tests.support.tunnel_pair import Shape, TunnelPair, wait_until
from tests.support.tunnel_pki import TunnelPki

UMBILICAL: Final = str(Path(sys.executable).parent / "umbilical")
CONNECT_SECONDS: Final = 5.0


class Balancer:
    """The behaviour of a TCP load balancer: every connection goes to a server drawn at random."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self.accepted = 0

    def __call__(self, client: socket.socket) -> None:
        self.accepted += 1
        try:
            server = socket.create_connection(("127.0.0.1", random.choice(self.ports)), CONNECT_SECONDS)
        except (OSError, IndexError):
            return
        with server:
            relay(client, server)


def relay(one: socket.socket, other: socket.socket) -> None:
    """Copy both ways until either side ends."""
    partner = {one: other, other: one}
    while True:
        for sock in select.select([one, other], [], [])[0]:
            try:
                octets = sock.recv(1 << 16)
                partner[sock].sendall(octets)
            except OSError:
                return
            if not octets:
                return


class Fleet:
    """Servers behind a balancer. `more_flags` go to every server, ours and upstream's alike."""

    def __init__(self, pki: TunnelPki, folder: Path, stack: ExitStack, server_flags: Sequence[str] = ()) -> None:
        self.balancer = Balancer()
        self.address = stack.enter_context(endpoint(self.balancer))
        self.port = int(self.address.rpartition(":")[2])
        self.servers: dict[str, TunnelPair] = {}
        self._pki, self._folder, self._stack = pki, folder, stack
        self._flags = list(server_flags)

    def add_server(self, server_id: str, *flags: str, implementation: str = "ours", key: str = "") -> TunnelPair:
        """Start a server and let the balancer lead to it; `key` is its name here if the ID is not unique."""
        pair = self._pair(
            Shape(implementation, workers=1),
            f"server-{key or server_id}",
            [*self._flags, f"--server-id={server_id}", *flags],
            [],
        )
        pair.start_server()
        self.servers[key or server_id] = pair
        self.balancer.ports.append(pair.ports.agent)
        return pair

    def add_native_server(self, server_id: str, *options: str, advertise: bool = False) -> TunnelPair:
        """The same by `umbilical server run`, which may publish its own address too."""
        pair = self._pair(Shape(), f"server-{server_id}", [], [])
        published = ("--advertise", f"127.0.0.1:{pair.ports.agent}") if advertise else ()
        pair.server.command = self.native_server_command(pair, server_id, *options, *published)
        pair.start_server()
        self.servers[server_id] = pair
        self.balancer.ports.append(pair.ports.agent)
        return pair

    def native_server_command(self, pair: TunnelPair, server_id: str, *options: str) -> list[str]:
        serving, ports = self._pki.server, pair.ports
        return [
            *(UMBILICAL, "server", "run", "--id", server_id, "--mode", pair.shape.mode),
            *("--listen", f"unix:{pair.socket_path}", "--agents", f"127.0.0.1:{ports.agent}"),
            *("--agent-cert", str(serving.certificate), "--agent-key", str(serving.key)),
            *("--health", f"127.0.0.1:{ports.server_health}", "--admin", f"127.0.0.1:{ports.server_admin}"),
            *options,
        ]

    def add_agent(self, agent_id: str, *flags: str, implementation: str = "ours") -> TunnelPair:
        """Start an agent that knows the balancer's address only."""
        more = [f"--proxy-server-port={self.port}", f"--agent-id={agent_id}", *flags]
        pair = self._pair(Shape(agent=implementation), f"agent-{agent_id}", [], more)
        pair.agent.start()
        return pair

    def add_native_agent(self, agent_id: str, *options: str, through_balancer: bool = True) -> TunnelPair:
        """By `umbilical agent run`; without the balancer the options must say where servers are."""
        pair = self._pair(Shape(), f"agent-{agent_id}", [], [])
        pair.agent.command = [
            *(UMBILICAL, "agent", "run", "--id", agent_id),
            *(("--server", self.address) if through_balancer else ()),
            *("--ca", str(self._pki.authority.certificate_file)),
            *("--health", f"127.0.0.1:{pair.ports.agent_health}", "--admin", f"127.0.0.1:{pair.ports.agent_admin}"),
            *("--sync-interval", "100ms", "--sync-interval-cap", "500ms", "--allow-destination", "127.0.0.0/8"),
            *options,
        ]
        pair.agent.start()
        return pair

    def remove(self, key: str) -> TunnelPair:
        """Have the balancer forget a server, as it does with one that is not ready; the server itself runs on."""
        pair = self.servers.pop(key)
        self.balancer.ports.remove(pair.ports.agent)
        return pair

    def kill(self, key: str) -> None:
        self.remove(key).server.kill()

    def _pair(self, shape: Shape, name: str, server_flags: list[str], agent_flags: list[str]) -> TunnelPair:
        folder = self._folder / name
        folder.mkdir()
        pair = TunnelPair(shape, self._pki, folder, server_flags, agent_flags)
        self._stack.callback(lambda: print(pair.logs()))
        self._stack.callback(pair.stop)
        return pair


@contextmanager
def fleet(pki: TunnelPki, folder: Path, *server_flags: str) -> Iterator[Fleet]:
    with ExitStack() as stack:
        yield Fleet(pki, folder, stack, server_flags)


def wait_for_servers(agent: TunnelPair, count: int, timeout: float = 60.0) -> None:
    """Wait until an agent holds connections to so many servers."""
    wait_until(lambda: open_servers(agent) == count, f"the agent is connected to {count} servers", timeout)


def open_servers(agent: TunnelPair) -> int:
    """How many servers an agent is connected to; -1 while it starts."""
    assert agent.agent.is_running(), agent.agent.log_tail()
    if agent.agent_health("/healthz")[0] != 200:
        return -1
    return int(agent.agent_metric("open_server_connections"))


def say(tunnel: Tunnel, message: bytes) -> None:
    tunnel.send(message)
    assert receive_exactly(tunnel, len(message)) == message


def check_tunnel(server: TunnelPair) -> None:
    """Echo once through this server."""
    with endpoint(echo) as address:
        tunnel = server.frontend().open(address)
        say(tunnel, b"hello")
        tunnel.close()
