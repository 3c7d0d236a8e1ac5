"""Several servers behind one address: an agent finds them all, finds them again, and leaves none in a hurry."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.chaos.tunnel_records import ClientRecord, Outcome
from tests.chaos.verify import disagreements
from tests.interop.endpoints import echo, endpoint
from tests.interop.fleet import Fleet, check_tunnel, fleet, open_servers, say, wait_for_servers
from tests.interop.squad import AGENTS, PATIENCE_SECONDS, SERVERS, Load, Squad, squad
from tests.support.tunnel_client import Tunnel, receive_to_end
from tests.support.tunnel_pair import TunnelPair, wait_until
from tests.support.tunnel_pki import TunnelPki

GRACE: Final = "--graceful-shutdown-timeout=60s"
# Many sync intervals: what an agent wants to do, it has done by then.
SETTLED_SECONDS: Final = 1.5


@pytest.fixture
def three(pki: TunnelPki, tmp_path: Path) -> Iterator[Fleet]:
    """Three servers that know of each other, one of them upstream's."""
    with fleet(pki, tmp_path, "--server-count=3") as servers:
        servers.add_server("s1")
        servers.add_server("s2")
        servers.add_server("s3", implementation="upstream")
        yield servers


@pytest.mark.real("proxy-server", "proxy-agent")
@pytest.mark.parametrize("implementation", ["ours", "upstream"])
def test_an_agent_reaches_all_servers_and_finds_the_replacement_of_a_dead_one(
    three: Fleet, implementation: str
) -> None:
    agent = three.add_agent("a1", implementation=implementation)
    wait_for_servers(agent, 3)
    for server in three.servers.values():
        check_tunnel(server)

    three.kill("s1")
    wait_for_servers(agent, 2)
    replacement = three.add_server("s4")
    wait_for_servers(agent, 3)
    check_tunnel(replacement)
    check_tunnel(three.servers["s2"])


@pytest.mark.real("proxy-server", "proxy-agent")
def test_an_agent_finds_a_server_that_restarts_under_its_old_name(three: Fleet) -> None:
    agent = three.add_agent("a1")
    wait_for_servers(agent, 3)
    server = three.servers["s2"]
    server.server.kill()
    wait_for_servers(agent, 2)
    server.start_server()
    wait_for_servers(agent, 3)
    check_tunnel(server)


@pytest.mark.real("proxy-server", "proxy-agent")
def test_an_agent_that_has_enough_servers_asks_for_no_more(three: Fleet) -> None:
    agent = three.add_agent("a1")
    wait_for_servers(agent, 3)
    asked = three.balancer.accepted
    three.add_server("s4")
    time.sleep(SETTLED_SECONDS)
    assert open_servers(agent) == 3
    assert three.balancer.accepted == asked
    assert agent.agent_metric("known_server_count") == 3


@pytest.mark.real("proxy-server", "proxy-agent")
def test_sync_forever_discovers_a_server_that_nobody_announced(three: Fleet) -> None:
    agent = three.add_agent("a1", "--sync-forever")
    wait_for_servers(agent, 3)
    fourth = three.add_server("s4")
    wait_for_servers(agent, 4)
    check_tunnel(fourth)


@pytest.mark.real("proxy-server", "proxy-agent")
def test_connections_to_a_server_that_is_held_already_are_closed(pki: TunnelPki, tmp_path: Path) -> None:
    with fleet(pki, tmp_path, "--server-count=2") as servers:
        server = servers.add_server("s1")
        agent = servers.add_agent("a1")
        wait_for_servers(agent, 1)
        asked = servers.balancer.accepted
        wait_until(lambda: servers.balancer.accepted > asked + 3, "the agent looks for the second server")
        assert open_servers(agent) == 1
        # The one under way at this moment may be open still; none of those before it is.
        wait_until(lambda: server.server_metric("ready_backend_connections") == 1, "the server has one backend")
        files = agent.agent.open_files()
        asked = servers.balancer.accepted
        wait_until(lambda: servers.balancer.accepted > asked + 5, "the agent looks on")
        assert agent.agent.open_files() <= files + 1
        assert server.server_metric('grpc_connections{service_method="Connect"}') <= 2
        check_tunnel(server)


@pytest.mark.real("proxy-server", "proxy-agent")
def test_of_two_servers_with_one_name_an_agent_holds_one(pki: TunnelPki, tmp_path: Path) -> None:
    with fleet(pki, tmp_path, "--server-count=2") as servers:
        twins = [servers.add_server("twin", key=key) for key in ("one", "other")]
        agent = servers.add_agent("a1")
        wait_for_servers(agent, 1)
        asked = servers.balancer.accepted
        wait_until(lambda: servers.balancer.accepted > asked + 5, "the agent looks for the second server")
        assert open_servers(agent) == 1
        wait_until(lambda: sorted(map(_backends, twins)) == [0, 1], "one of the two has the agent")
        check_tunnel(max(twins, key=_backends))


def _backends(server: TunnelPair) -> int:
    return int(server.server_metric("ready_backend_connections"))


@pytest.mark.real("proxy-server", "proxy-agent")
@pytest.mark.parametrize("implementation", ["ours", "upstream"])
def test_a_tunnel_ends_in_peace_while_the_agent_turns_to_the_replacement(
    pki: TunnelPki, tmp_path: Path, implementation: str
) -> None:
    with fleet(pki, tmp_path, "--server-count=3", GRACE) as servers, endpoint(echo) as address:
        leaver = servers.add_server("s1", implementation=implementation)
        servers.add_server("s2")
        servers.add_server("s3")
        agent = servers.add_agent("a1")
        wait_for_servers(agent, 3)
        tunnel = leaver.frontend().open(address)
        say(tunnel, b"before")

        servers.remove("s1")
        leaver.server.signal(signal.SIGTERM)
        wait_for_servers(agent, 2)
        replacement = servers.add_server("s4")
        wait_for_servers(agent, 3)
        check_tunnel(replacement)
        say(tunnel, b"still here")
        assert leaver.server.is_running()
        tunnel.close()
        assert leaver.server.wait() == 0
        assert open_servers(agent) == 3


@pytest.mark.real("proxy-server", "proxy-agent")
def test_upstreams_agent_keeps_its_tunnel_too_and_finds_the_replacement_afterwards(
    pki: TunnelPki, tmp_path: Path
) -> None:
    with fleet(pki, tmp_path, GRACE) as servers, endpoint(echo) as address:
        leaver = servers.add_server("s1")
        agent = servers.add_agent("a1", implementation="upstream")
        wait_for_servers(agent, 1)
        tunnel = leaver.frontend().open(address)
        servers.remove("s1")
        leaver.server.signal(signal.SIGTERM)
        replacement = servers.add_server("s2")
        # Past many of its probe intervals, by which it would have dropped a server that says GOAWAY.
        time.sleep(SETTLED_SECONDS)
        say(tunnel, b"still here")
        tunnel.close()
        assert leaver.server.wait() == 0
        wait_until(lambda: replacement.server_health("/readyz")[0] == 200, "the replacement has the agent")
        check_tunnel(replacement)


@pytest.mark.real("proxy-server", "proxy-agent")
def test_our_own_commands_do_the_same_by_default(pki: TunnelPki, tmp_path: Path) -> None:
    agent_ca = ("--agent-ca", str(pki.authority.certificate_file), "--mode", "http-connect")
    identity = ("--cert", str(pki.agent.certificate), "--key", str(pki.agent.key))
    with fleet(pki, tmp_path) as servers, endpoint(echo) as address:
        leaver = servers.add_native_server("s1", *agent_ca)
        agent = servers.add_native_agent("a1", *identity)
        wait_for_servers(agent, 1)
        tunnel = leaver.frontend().open(address)
        say(tunnel, b"before")

        servers.remove("s1")
        leaver.server.signal(signal.SIGTERM)
        replacement = servers.add_native_server("s2", *agent_ca)
        wait_until(lambda: replacement.server_health("/readyz")[0] == 200, "the replacement has the agent")
        check_tunnel(replacement)
        say(tunnel, b"still here")
        tunnel.close()
        assert leaver.server.wait() == 0


@pytest.mark.real("proxy-server", "proxy-agent")
def test_a_link_to_a_server_that_died_without_a_word_is_given_up_and_its_tunnels_end(three: Fleet) -> None:
    agent = three.add_agent("a1")
    wait_for_servers(agent, 3)
    with endpoint(echo) as address:
        tunnels = {name: server.frontend().open(address) for name, server in three.servers.items()}
        three.kill("s2")
        assert receive_to_end(tunnels["s2"]) == b""
        wait_for_servers(agent, 2)
        wait_until(lambda: agent.agent_metric("open_endpoint_connections") == 2, "its endpoint is closed")
        say(tunnels["s1"], b"untouched")
        say(tunnels["s3"], b"untouched")
        for tunnel in tunnels.values():
            tunnel.close()


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
    wanted = len(load.client_records()) + count
    wait_until(lambda: len(load.client_records()) >= wanted, f"{count} more tunnels", PATIENCE_SECONDS)


def _text(client: ClientRecord) -> str:
    return f"{client.server} {client.kind} {client.outcome}: {client.how}"


@pytest.mark.timeout(300)
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
    client_records = load.client_records()
    assert not [_text(client) for client in client_records if client.outcome is not Outcome.WHOLE]
    assert not list(disagreements(client_records, load.endpoint_records()))
    assert {client.server for client in client_records} == set(SERVERS)
    wait_until(lambda: not any(map(servers.tunnels_of, AGENTS)), "no tunnel is left", PATIENCE_SECONDS)


def _open_everywhere(servers: Squad, address: str, each: int) -> dict[str, list[Tunnel]]:
    tunnels = {name: [servers.frontend(name).open(address) for _ in range(each)] for name in SERVERS}
    for tunnel in (tunnel for held in tunnels.values() for tunnel in held):
        say(tunnel, b"before")
    return tunnels


@pytest.mark.timeout(300)
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


@pytest.mark.timeout(300)
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
