"""All servers and all agents replaced under load, and one of each killed: who notices (O5, O6, upstream 566).

Pings come once in an hour here: whatever is told of a death is told by the connection that ended.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.chaos.ledger import Outcome, Passage
from tests.chaos.verify import disagreements
from tests.interop.endpoints import echo, endpoint
from tests.interop.fleet import say
from tests.interop.squad import AGENTS, PATIENCE_SECONDS, SERVERS, Load, Squad, squad
from tests.support.tunnel_client import Tunnel, receive_to_end
from tests.support.tunnel_pair import wait_until
from tests.support.tunnel_pki import TunnelPki

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

SOME_TUNNELS: Final = 10


@pytest.fixture
def servers(pki: TunnelPki, tmp_path: Path) -> Iterator[Squad]:
    with squad(pki, tmp_path) as made:
        yield made


def _replace_server(servers: Squad, name: str) -> None:
    leaver = servers.leave(name)
    wait_until(lambda: servers.has_let_go(name), f"{name} lets go of its socket", PATIENCE_SECONDS)
    servers.add_server(name)
    servers.wait_whole()
    assert leaver.daemon.wait(PATIENCE_SECONDS) == 0, leaver.daemon.log_tail()
    assert not servers.has_let_go(name), "the socket of the successor is gone"


def _replace_agent(servers: Squad, name: str) -> None:
    leaver = servers.leave(name)
    assert leaver.daemon.wait(PATIENCE_SECONDS) == 0, leaver.daemon.log_tail()
    servers.add_agent(name)
    servers.wait_whole()


def _wait_for_more(load: Load, count: int) -> None:
    """Let load pass between two restarts, however slow the machine is."""
    wanted = len(load.passages()) + count
    wait_until(lambda: len(load.passages()) >= wanted, f"{count} more tunnels", PATIENCE_SECONDS)


def _told(passage: Passage) -> str:
    return f"{passage.server} {passage.shape} {passage.outcome}: {passage.how}"


def test_a_rolling_restart_of_all_servers_and_agents_fails_no_request(servers: Squad, tmp_path: Path) -> None:
    load = Load(tmp_path)
    with load.run(servers):
        _wait_for_more(load, SOME_TUNNELS)
        for name in SERVERS:
            _replace_server(servers, name)
            _wait_for_more(load, SOME_TUNNELS)
        for name in AGENTS:
            _replace_agent(servers, name)
            _wait_for_more(load, SOME_TUNNELS)
    passages = load.passages()
    assert not [_told(passage) for passage in passages if passage.outcome is not Outcome.WHOLE]
    assert not list(disagreements(passages, load.visits()))
    assert {passage.server for passage in passages} == set(SERVERS)
    wait_until(lambda: not any(map(servers.tunnels_of, AGENTS)), "no tunnel is left", PATIENCE_SECONDS)


def _open_everywhere(servers: Squad, address: str, each: int) -> dict[str, list[Tunnel]]:
    tunnels = {name: [servers.frontend(name).open(address) for _ in range(each)] for name in SERVERS}
    for tunnel in (tunnel for held in tunnels.values() for tunnel in held):
        say(tunnel, b"before")
    return tunnels


def test_a_killed_server_takes_its_own_tunnels_along_at_once_and_no_others(servers: Squad) -> None:
    with endpoint(echo) as address:
        tunnels = _open_everywhere(servers, address, each=2)
        servers.kill("server-0")
        for tunnel in tunnels.pop("server-0"):
            assert receive_to_end(tunnel) == b""
        left = sum(map(len, tunnels.values()))
        wait_until(lambda: sum(map(servers.tunnels_of, AGENTS)) == left, "agents close its endpoints", PATIENCE_SECONDS)
        for name in AGENTS:
            assert "UMB341 connection lost server=server-0" in servers.members[name].log()
        for tunnel in (tunnel for held in tunnels.values() for tunnel in held):
            say(tunnel, b"after")
            tunnel.close()
        servers.add_server("server-0")
        servers.wait_whole()
        tunnel = servers.frontend("server-0").open(address)
        say(tunnel, b"again")
        tunnel.close()


def test_a_killed_agent_takes_its_own_tunnels_along_at_once_and_no_others(servers: Squad) -> None:
    with endpoint(echo) as address:
        tunnels = [tunnel for held in _open_everywhere(servers, address, each=4).values() for tunnel in held]
        victim = max(AGENTS, key=servers.tunnels_of)
        lost = servers.tunnels_of(victim)
        assert lost
        servers.kill(victim)
        left = [tunnel for tunnel in tunnels if _says(tunnel)]
        assert len(left) == len(tunnels) - lost
        for name in SERVERS:
            assert f"UMB302 agent gone agent={victim}" in servers.members[name].log()
            tunnel = servers.frontend(name).open(address)
            say(tunnel, b"through another one")
            tunnel.close()
        for tunnel in left:
            tunnel.close()


def _says(tunnel: Tunnel) -> bool:
    """Whether a tunnel still echoes; one that ended says so, and does not leave us waiting."""
    try:
        tunnel.send(b"after")
        return tunnel.receive(5) == b"after"
    except (ConnectionError, EOFError):
        return False
