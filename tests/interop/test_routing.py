"""What the server's choice among agents asks of agents, held against ours and upstream's."""

import pytest
from tests.interop.conftest import StartPair
from tests.interop.endpoints import echo, endpoint
from tests.support.tunnel_client import DialRefused, receive_exactly
from tests.support.tunnel_pair import Shape

from umbilical.konnectivity.health import PROBE_ADDRESS

pytestmark = pytest.mark.real
AGENTS = pytest.mark.parametrize("agent", ["ours", "upstream"])


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
