"""Identity at a server's two doors, with upstream's agents and curl: HyperShift's faults 2 and 3, not repeated."""

import subprocess
from pathlib import Path

import pytest
from tests.interop.conftest import StartPair
from tests.interop.endpoints import echo, endpoint
from tests.support.tunnel_pair import Shape, TunnelPair, wait_until
from tests.support.tunnel_pki import FolderAuthority, Pair, TunnelPki

AGENTS = ["ours", pytest.param("upstream", marks=pytest.mark.real("proxy-agent"))]
ROUTED = "--proxy-strategies=destHost,defaultRoute"


@pytest.fixture
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules") / "identities"
    path.write_text("CN=proxy-agent default-route=true\nCN=konnectivity-agent-control-plane ipv4=127.0.0.1\n")
    return path


@pytest.mark.real("curl")
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_within_its_rules_serves(start_pair: StartPair, rules: Path, agent: str) -> None:
    pair = start_pair(
        Shape("ours", agent, "http-connect", "tcp-mtls"),
        server_flags=[ROUTED, f"--agent-identities={rules}"],
        agent_flags=["--agent-identifiers=default-route=true"],
    )
    with endpoint(echo) as address:
        assert _status(pair, pair.pki.client, address) == "200"


@pytest.mark.parametrize("agent", AGENTS)
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


@pytest.mark.real("curl")
def test_only_named_clients_get_tunnels(start_pair: StartPair, pki: TunnelPki) -> None:
    pair = start_pair(
        Shape("ours", "ours", "http-connect", "tcp-mtls"), server_flags=["--frontend-identities=CN=konnectivity-client"]
    )
    with endpoint(echo) as address:
        assert _status(pair, pair.pki.client, address) == "403"
        assert _status(pair, _client(pki.authority, "konnectivity-client"), address) == "200"


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
