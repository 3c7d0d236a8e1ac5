"""Three servers that agents know by their own addresses, and a client that chooses among them as a balancer does.

A server or an agent can be replaced under load. The successor of a server takes its socket and its port for agents over
as soon as the old one has let go of them, while that one still waits for its last tunnels.
"""

import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from tests.chaos.endpoint import Endpoint
from tests.chaos.traffic import KIB, TrafficOptions, start_workers
from tests.chaos.tunnel_records import (
    ClientRecord,
    EndpointRecord,
    RecordFile,
    read_client_records,
    read_endpoint_records,
)
from tests.interop.fleet import UMBILICAL
from tests.support.grpc_channel import ChannelClosed
from tests.support.tunnel_client import DialRefused, Frontend, Tunnel
from tests.support.tunnel_pair import Daemon, free_port, http_get, metric, wait_until
from tests.support.tunnel_pki import TunnelPki

SERVERS: Final = ("server-0", "server-1", "server-2")
AGENTS: Final = ("agent-0", "agent-1", "agent-2")
MODES: Final = dict(zip(SERVERS, ("http-connect", "http-connect", "grpc"), strict=True))
WORKERS: Final = 6
LARGEST_BYTES: Final = 512 * KIB
PATIENCE_SECONDS: Final = 60.0


class Member:
    """A process with the ports on which it tells of itself."""

    def __init__(self, daemon: Daemon, health: int, admin: int) -> None:
        self.daemon = daemon
        self.health, self.admin = health, admin

    def log(self) -> str:
        return self.daemon.log.read_text()


class Squad:
    def __init__(self, pki: TunnelPki, folder: Path) -> None:
        self._pki, self._folder = pki, folder
        self._ports = {server: free_port() for server in SERVERS}
        self._numbers = count()
        self._all: list[Member] = []
        self.members: dict[str, Member] = {}
        """Who serves now, by name; those that leave are not among them."""

    def start(self) -> None:
        for name in SERVERS:
            self.add_server(name)
        for name in AGENTS:
            self.add_agent(name)
        self.wait_whole()

    def stop(self) -> None:
        for member in self._all:
            member.daemon.kill()

    def logs(self) -> str:
        return "\n".join(member.daemon.log_tail() for member in self._all)

    def add_server(self, name: str) -> Member:
        health, admin = free_port(), free_port()
        pki = self._pki
        return self._add(
            name,
            health,
            admin,
            *(UMBILICAL, "server", "run", "--id", name, "--mode", MODES[name], "--count", str(len(SERVERS))),
            *("--listen", f"unix:{self._socket(name)}", "--agents", f"127.0.0.1:{self._ports[name]}"),
            *("--agent-cert", str(pki.server.certificate), "--agent-key", str(pki.server.key)),
            *("--agent-ca", str(pki.authority.certificate_file)),
        )

    def add_agent(self, name: str) -> Member:
        health, admin = free_port(), free_port()
        pki = self._pki
        servers = [word for port in self._ports.values() for word in ("--server", f"127.0.0.1:{port}")]
        return self._add(
            name,
            health,
            admin,
            *(UMBILICAL, "agent", "run", "--id", name, *servers, "--ca", str(pki.authority.certificate_file)),
            *("--cert", str(pki.agent.certificate), "--key", str(pki.agent.key)),
            *("--sync-interval", "100ms", "--sync-interval-cap", "500ms", "--drain-linger", "1s"),
            "--allow-destination=127.0.0.0/8",
        )

    def leave(self, name: str) -> Member:
        """Ask a member to go, as a rolling restart does."""
        member = self.members.pop(name)
        member.daemon.signal(signal.SIGTERM)
        return member

    def kill(self, name: str) -> Member:
        member = self.members.pop(name)
        member.daemon.kill()
        return member

    def wait_whole(self) -> None:
        """Wait until all that should serve do, and every agent has every server."""
        wait_until(self._is_whole, "every agent has every server", PATIENCE_SECONDS)

    def has_let_go(self, name: str) -> bool:
        """Whether nobody accepts clients for this server any more."""
        return not self._socket(name).exists()

    def tunnels_of(self, name: str) -> int:
        return int(metric(self.members[name].health, "konnectivity_network_proxy_agent_open_endpoint_connections"))

    def frontend(self, name: str) -> Frontend:
        return Frontend(MODES[name], unix_path=self._socket(name))

    def open_tunnel(self, client: ClientRecord, address: str) -> Tunnel:
        """Open one through whichever server takes it. Only a dial that nobody has answered goes to the next one.

        As balancers do, it leaves out servers that call themselves unready: a successor has no agent at first.
        """
        last: Exception | None = None
        for name in random.sample(SERVERS, len(SERVERS)):
            client.server = name
            if not self._is_ready(name):
                continue
            try:
                return self.frontend(name).open(address)
            except TimeoutError:
                raise
            except (OSError, ChannelClosed) as error:
                last = error
            except DialRefused as refusal:
                # Without a status line there was no answer: the connection ended before the server took it.
                if refusal.status_line or MODES[name] == "grpc":
                    raise
                last = refusal
        raise DialRefused(f"no server takes it: {last!r}")

    def _is_ready(self, name: str) -> bool:
        member = self.members.get(name)
        return member is not None and http_get(f"http://127.0.0.1:{member.health}/readyz")[0] == 200

    def _socket(self, name: str) -> Path:
        return self._folder / f"{name}.sock"

    def _add(self, name: str, health: int, admin: int, *command: str) -> Member:
        log = self._folder / f"{name}-{next(self._numbers)}.log"
        places = ("--health", f"127.0.0.1:{health}", "--admin", f"127.0.0.1:{admin}", "--keepalive", "1h")
        member = Member(Daemon([*command, *places], log), health, admin)
        self._all.append(member)
        self.members[name] = member
        member.daemon.start()
        return member

    def _is_whole(self) -> bool:
        for name, member in self.members.items():
            assert member.daemon.is_running(), member.daemon.log_tail()
            if http_get(f"http://127.0.0.1:{member.health}/readyz")[0] != 200:
                return False
            gauge, wanted = ("agent_open_server_connections", SERVERS)
            if name in SERVERS:
                gauge, wanted = ("server_ready_backend_connections", AGENTS)
            here = [other for other in wanted if other in self.members]
            if metric(member.health, f"konnectivity_network_proxy_{gauge}") != len(here):
                return False
        return True


@contextmanager
def squad(pki: TunnelPki, folder: Path) -> Iterator[Squad]:
    made = Squad(pki, folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        print(made.logs())


class Load:
    """Tunnels of all kinds, one after another in every worker, and the records of both ends."""

    def __init__(self, folder: Path) -> None:
        self._client_records, self._endpoint_records, self._stop = (
            folder / name for name in ("client_records", "endpoint_records", "stop")
        )

    @contextmanager
    def run(self, servers: Squad) -> Iterator[None]:
        """Run while the block does; then every worker ends its last tunnel."""
        with self._endpoint() as address:
            options = TrafficOptions(
                server="",
                endpoints={"endpoint": address},
                records=str(self._client_records),
                stop_file=str(self._stop),
                seed=1,
                first_tunnel=0,
                workers=WORKERS,
                steady_workers=WORKERS // 2,
                largest_bytes=LARGEST_BYTES,
            )
            threads = start_workers(options, servers.open_tunnel)
            try:
                yield
            finally:
                self._stop.touch()
                for thread in threads:
                    thread.join(PATIENCE_SECONDS)
            assert not any(thread.is_alive() for thread in threads)

    def client_records(self) -> list[ClientRecord]:
        return read_client_records(self._client_records.read_text()) if self._client_records.exists() else []

    def endpoint_records(self) -> list[EndpointRecord]:
        return read_endpoint_records(self._endpoint_records.read_text()) if self._endpoint_records.exists() else []

    @contextmanager
    def _endpoint(self) -> Iterator[str]:
        with Endpoint("endpoint", "127.0.0.1", free_port(), RecordFile(self._endpoint_records)) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            try:
                yield f"127.0.0.1:{server.server_address[1]}"
            finally:
                server.shutdown()
                thread.join(10)
