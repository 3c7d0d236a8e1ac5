"""What the server's choice among agents asks of agents, held against ours and upstream's."""

import subprocess
from pathlib import Path

import pytest
from tests.interop.conftest import StartPair
from tests.interop.endpoints import echo, endpoint
from tests.support.tunnel_client import DialRefused, receive_exactly
from tests.support.tunnel_pair import Shape, TunnelPair, wait_until
from tests.support.tunnel_pki import FolderAuthority, Pair, TunnelPki

from umbilical.konnectivity.health import PROBE_ADDRESS

AGENTS = pytest.mark.parametrize("agent", ["ours", pytest.param("upstream", marks=pytest.mark.real("proxy-agent"))])


@AGENTS
def test_the_question_to_a_sick_agent_is_answered_without_a_lookup(start_pair: StartPair, agent: str) -> None:
    """A lookup would be named in the error, and could take its time."""
    pair = start_pair(Shape("ours", agent, "grpc", "uds"))
    with pytest.raises(DialRefused, match=r"^dial tcp: address [-\w]+: missing port in address$"):
        pair.frontend().open(PROBE_ADDRESS)


@AGENTS
def test_networks_that_an_agent_names_lead_to_it(start_pair: StartPair, agent: str) -> None:
    pair = start_pair(
        Shape("ours", agent),
        server_flags=["--proxy-strategies=cidr"],
        agent_flags=["--agent-identifiers=cidr=127.0.0.0/8&cidr=no-network"],
    )
    with endpoint(echo) as address:
        tunnel = pair.frontend().open(address)
        tunnel.send(b"by its network")
        assert receive_exactly(tunnel, 14) == b"by its network"
        tunnel.close()
        with pytest.raises(DialRefused, match="No agent available"):
            pair.frontend().open(f"localhost:{address.rpartition(':')[2]}")


ROUTED = "--proxy-strategies=destHost,defaultRoute"


@pytest.fixture
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules") / "identities"
    path.write_text("CN=proxy-agent default-route=true\nCN=konnectivity-agent-control-plane ipv4=127.0.0.1\n")
    return path


@pytest.mark.real("curl")
@AGENTS
def test_an_agent_within_its_rules_serves(start_pair: StartPair, rules: Path, agent: str) -> None:
    pair = start_pair(
        Shape("ours", agent, "http-connect", "tcp-mtls"),
        server_flags=[ROUTED, f"--agent-identities={rules}"],
        agent_flags=["--agent-identifiers=default-route=true"],
    )
    with endpoint(echo) as address:
        assert _status(pair, pair.pki.client, address) == "200"


@AGENTS
def test_a_node_agent_cannot_draw_the_traffic_of_an_aggregated_api_to_itself(
    start_pair: StartPair, rules: Path, agent: str
) -> None:
    pair = start_pair(
        Shape("ours", agent, "http-connect"),
        agents=False,
        server_flags=[ROUTED, f"--agent-identities={rules}"],
        agent_flags=["--agent-identifiers=default-route=true&ipv4=127.0.0.1"],
    )
    pair.agent.start()
    log = pair.folder / "server-ours.log"
    wait_until(lambda: "does not allow the identifier ipv4=127.0.0.1" in log.read_text(), "the refusal")
    assert pair.agent_health("/readyz")[0] != 200


@pytest.mark.real("curl")
@pytest.mark.parametrize("name", ["konnectivity-agent", "konnectivity-agent-control-plane"])
def test_an_agents_certificate_is_not_accepted_on_the_frontend(
    start_pair: StartPair, pki: TunnelPki, name: str
) -> None:
    pair = start_pair(Shape("ours", "ours", "http-connect", "tcp-mtls"))
    with endpoint(echo) as address:
        assert _status(pair, _client(pki.authority, name), address) == "403"
        assert _status(pair, pair.pki.client, address) == "200"


def _client(authority: FolderAuthority, name: str) -> Pair:
    return authority.client(name)


def _status(pair: TunnelPair, client: Pair, address: str) -> str:
    """What the server answers curl's CONNECT."""
    command = ["curl", "--silent", "--max-time", "30", "-p", "-x", f"https://127.0.0.1:{pair.ports.frontend}"]
    command += ["--proxy-cacert", str(pair.pki.authority.certificate_file)]
    command += ["--proxy-cert", str(client.certificate), "--proxy-key", str(client.key)]
    command += ["-w", "%{http_connect}", "-o", "/dev/null", f"http://{address}/"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, input="")
    return done.stdout
