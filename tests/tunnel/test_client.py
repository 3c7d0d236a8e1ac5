"""What every client of a tunnel can do before it knows how: nothing, and tell its story once."""

import logging

import pytest

from umbilical.konnectivity.commands import Tunnel
from umbilical.konnectivity.dial_failure import DialFailure, FailureReason
from umbilical.konnectivity.metadata import AgentIdentifiers
from umbilical.konnectivity.routing import AgentLink
from umbilical.tunnel.client import Client


def test_a_client_takes_every_order_of_the_server_in_silence() -> None:
    client = Client()
    tunnel = Tunnel(client, 7, "web:443", 0.0)
    client.opened(tunnel)
    client.deliver(memoryview(b"x"))
    client.pause()
    client.resume()
    client.refused(DialFailure(FailureReason.NO_AGENT))
    client.closed("", "endpoint closed")
    assert (client.bytes_from_client, client.bytes_to_client) == (0, 0)


def test_a_tunnel_leaves_one_line_whoever_reports_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "umbilical.tunnels")
    client = Client()
    client.tunnel = tunnel = Tunnel(client, 7, "web:443", 10.0)
    tunnel.link = AgentLink(1, "a1", AgentIdentifiers())
    tunnel.connection_id = 3
    client.bytes_from_client, client.bytes_to_client = 5, 9
    client.report(12.5, "client closed")
    client.report(13.0, "agent lost")
    (line,) = caplog.messages
    assert line == ('tunnel dial=7 connection=3 agent=a1 target=web:443 up=5 down=9 ms=2500 end="client closed"')


def test_a_dial_that_no_agent_took_is_told_without_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "umbilical.tunnels")
    client = Client()
    client.tunnel = Tunnel(client, 7, "web:443", 0.0)
    client.report(0.0, "No agent available")
    assert "agent=- target=web:443" in caplog.messages[0]


def test_a_client_without_a_tunnel_has_no_story(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "umbilical.tunnels")
    Client().report(1.0, "client gone")
    assert caplog.messages == []
