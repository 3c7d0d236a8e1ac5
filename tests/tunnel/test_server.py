"""A server as a whole: who is let in, which agent serves, and how it leaves."""

import pytest
from tests.support.in_process import Stage, echo
from tests.support.tunnel_client import receive_exactly


@pytest.mark.parametrize("mode", ["http-connect", "grpc"])
@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
def test_bytes_go_both_ways_through_a_server_and_an_agent(stage: Stage, mode: str, tcp: bool) -> None:
    server, agent = stage.start_pair(mode, tcp=tcp)
    endpoint = stage.endpoint().serve(echo)
    tunnel = server.frontend.open(endpoint.address)
    tunnel.send(b"hello")
    assert receive_exactly(tunnel, 5) == b"hello"
    tunnel.close()
    server.wait_until_quiet()
    agent.wait_until_idle()
