"""Where agents and clients meet: time limits, gauges that return to zero, strategies, and the line in the log."""

import logging
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.support import packet_messages
from tests.support.fixture_types import Logged, Patch
from tests.support.in_process import PATIENCE_SECONDS, Stage, echo, read_to_end, refused_address, sink
from tests.support.packet_messages import PacketType
from tests.support.scripted_peers import ScriptedAgent, open_without_window, scripted_pair
from tests.support.tunnel_client import DialRefused, Tunnel, receive_to_end

MODES = pytest.mark.parametrize("mode", ["http-connect", "grpc"])


def test_a_grpc_dial_that_the_agent_does_not_answer_times_out(stage: Stage) -> None:
    server, agent = scripted_pair(stage, "grpc", dial_timeout_seconds=0.3)
    dial = server.frontend.dial("web:443")
    dial_id = agent.next_dial().random
    with pytest.raises(DialRefused, match=r"^timed out waiting for backend dial$"):
        dial.finish()
    assert agent.receive(PacketType.DIAL_CLS).closeDial.random == dial_id
    assert server.dial_failures() == {"backend_dial_timeout": 1}
    server.wait_until_quiet()
    assert server.gauges().connect_streams == 1  # it was only slow: the agent stays


def test_an_agent_that_takes_no_packet_is_retired_and_its_client_gets_504(stage: Stage) -> None:
    server = stage.start_server(dial_timeout_seconds=0.6)
    stream = open_without_window(server)
    client = server.frontend.connect()
    client.sendall(b"CONNECT web:443 HTTP/1.1\r\n\r\n")
    assert read_to_end(client) == (
        b"HTTP/1.1 504 Gateway Timeout\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
        b"Failed to tunnel dial request: timed out waiting for backend dial\r\n"
    )
    server.wait_for_agents(0)
    assert not stage.call(server.server.is_ready)
    assert stream.messages == type(stream.messages)()


def test_several_dials_to_a_stalled_agent_fail_and_retire_it_once(stage: Stage) -> None:
    server = stage.start_server("grpc", dial_timeout_seconds=0.6)
    open_without_window(server)
    dials = [server.frontend.dial("web:443") for _ in range(5)]
    for dial in dials:
        with pytest.raises(DialRefused):
            dial.finish()
    server.wait_for_agents(0)
    server.wait_until_quiet()


def test_a_dial_that_times_out_beside_bulk_traffic_does_not_retire_its_agent(stage: Stage, monkeypatch: Patch) -> None:
    """Bytes that wait for the socket in this turn are no sign of a stall: others' tunnels must not pay for it."""
    server = stage.start_server(dial_timeout_seconds=PATIENCE_SECONDS)
    agent = stage.start_agent(server.agent_port, dial_timeout_seconds=100 * PATIENCE_SECONDS)
    agent.wait_until_ready()
    tunnel = server.frontend.open(stage.endpoint().serve(sink).address)
    enough = threading.Event()

    def upload() -> None:
        with suppress(OSError):
            while not enough.is_set():
                tunnel.send(bytes(1 << 20))

    uploading = threading.Thread(target=upload)
    uploading.start()
    try:
        for count in (1, 2, 3):
            dial = server.frontend.dial("never.answered:1")
            stage.eventually(lambda: len(agent.resolver.asked) == count)  # noqa: B023
            stage.skip(PATIENCE_SECONDS, monkeypatch)
            with pytest.raises(DialRefused, match="Gateway Timeout: Backend dial timeout"):
                dial.finish()
            assert server.gauges().established_connections == 1
    finally:
        enough.set()
        uploading.join(PATIENCE_SECONDS)


@MODES
def test_a_close_that_the_agent_never_answers_is_given_up(stage: Stage, mode: str, monkeypatch: Patch) -> None:
    """Also when no other dial keeps the clock going."""
    server, agent = scripted_pair(stage, mode)
    tunnel = agent.carry()
    stage.eventually(lambda: not server.server.core._sweeping)
    tunnel.abort()
    agent.receive(PacketType.CLOSE_REQ)
    stage.skip(61, monkeypatch)  # the first look notes that it waits
    stage.skip(61, monkeypatch)
    server.wait_until_quiet()


def _client_closes(agent: ScriptedAgent, tunnel: Tunnel) -> None:
    tunnel.abort()
    agent.receive(PacketType.CLOSE_REQ)
    agent.send(packet_messages.close_response(1))


def _endpoint_closes(agent: ScriptedAgent, _: Tunnel) -> None:
    agent.send(packet_messages.close_response(1))


def _endpoint_fails(agent: ScriptedAgent, _: Tunnel) -> None:
    agent.send(packet_messages.close_response(1, "endpoint reads too slowly"))


def _agent_goes(agent: ScriptedAgent, _: Tunnel) -> None:
    agent.close()


def _both_close(agent: ScriptedAgent, tunnel: Tunnel) -> None:
    agent.send(packet_messages.close_response(1))
    tunnel.abort()


@pytest.mark.parametrize(
    ("mode", "end"),
    [
        *(("http-connect", end) for end in (_client_closes, _endpoint_closes, _agent_goes)),
        *(("grpc", end) for end in (_client_closes, _endpoint_fails, _agent_goes, _both_close)),
    ],
)
def test_gauges_return_to_zero_however_a_tunnel_ends(
    stage: Stage, mode: str, end: Callable[[ScriptedAgent, Tunnel], None]
) -> None:
    server, agent = scripted_pair(stage, mode)
    assert server.gauges().established_connections == 0
    tunnel = agent.carry()
    assert server.gauges().established_connections == 1
    end(agent, tunnel)
    stage.eventually(lambda: server.server.core.gauges().established_connections == 0)
    tunnel.close()
    server.wait_until_quiet()


@MODES
def test_dials_lives_and_writes_to_clients_are_timed(stage: Stage, mode: str) -> None:
    server, agent = scripted_pair(stage, mode)
    tunnel = agent.carry()
    agent.send(packet_messages.close_response(1))
    assert tunnel.receive(1) == b""
    tunnel.close()
    server.wait_until_quiet()
    text = server.server.render_metrics().decode()
    for name in ("dial", "connection", "frontend_write"):
        (line,) = re.findall(rf"(?m)^konnectivity_network_proxy_server_{name}_duration_seconds_count (\d+)$", text)
        assert int(line) > 0, name


@MODES
def test_gauges_return_to_zero_however_a_dial_ends(stage: Stage, mode: str, monkeypatch: Patch) -> None:
    server = stage.start_server(mode, dial_timeout_seconds=PATIENCE_SECONDS)
    with pytest.raises(DialRefused):
        server.frontend.open("no.agent:1")
    agent = ScriptedAgent(server)
    refused = server.frontend.dial("refused:1")
    agent.send(packet_messages.dial_response(agent.next_dial().random, error="connection refused"))
    with pytest.raises(DialRefused):
        refused.finish()
    abandoned = server.frontend.dial("abandoned:1")
    agent.next_dial()
    stage.eventually(lambda: server.server.core.gauges().pending_dials == 1)
    abandoned.abandon()
    agent.receive(PacketType.DIAL_CLS)
    slow = server.frontend.dial("slow:1")
    agent.next_dial()
    stage.skip(PATIENCE_SECONDS, monkeypatch)
    with pytest.raises(DialRefused):
        slow.finish()
    agent.receive(PacketType.DIAL_CLS)
    lost = server.frontend.dial("lost:1")
    agent.next_dial()
    agent.close()
    with pytest.raises(DialRefused):
        lost.finish()
    server.wait_until_quiet()
    assert server.dial_failures() == {
        "no_agent": 1,
        "error_response": 1,
        "frontend_close": 1,
        "backend_dial_timeout": 1,
        "backend_close": 1,
    }


@MODES
def test_the_agents_gauges_return_to_zero_too(stage: Stage, mode: str) -> None:
    server, agent = stage.start_pair(mode)
    endpoint = stage.endpoint().serve(echo)
    tunnels = [server.frontend.open(endpoint.address) for _ in range(3)]
    assert agent.gauges().open_endpoint_connections == 3
    with pytest.raises(DialRefused):
        server.frontend.open(refused_address())
    tunnels[0].close()
    tunnels[1].abort()
    agent.stop()
    assert tunnels[2].receive(1) == b""
    tunnels[2].close()
    server.wait_until_quiet()
    assert agent.gauges().open_endpoint_connections == 0
    assert server.gauges().connect_streams == 0


def test_a_server_is_ready_when_any_strategy_has_an_agent(stage: Stage) -> None:
    """Upstream asks only the first strategy: with destHost first and a default-route agent it is never ready."""
    server = stage.start_server(strategies=("destHost", "defaultRoute"))
    assert not stage.call(server.server.is_ready)
    agent = ScriptedAgent(server, identifiers="default-route=true")
    assert stage.call(server.server.is_ready)
    agent.close()
    stage.eventually(lambda: not server.server.is_ready())


def test_an_agent_that_no_strategy_can_use_makes_nobody_ready(stage: Stage) -> None:
    server = stage.start_server(strategies=("destHost",))
    ScriptedAgent(server)
    assert not stage.call(server.server.is_ready)


@MODES
def test_a_tunnel_leaves_one_line_in_the_log(stage: Stage, mode: str, caplog: Logged) -> None:
    caplog.set_level(logging.INFO, "umbilical.tunnels")
    server = stage.start_server(mode)
    agent = ScriptedAgent(server, "a-1")
    tunnel = agent.carry()
    tunnel.send(b"four")
    agent.receive(PacketType.DATA)
    agent.send(packet_messages.data(1, b"seventy"), packet_messages.close_response(1))
    assert receive_to_end(tunnel) == b"seventy"
    tunnel.close()
    server.wait_until_quiet()
    (line,) = [record.getMessage() for record in caplog.records if record.name == "umbilical.tunnels"]
    client = f'client="uid={os.getuid()} pid={os.getpid()}"'
    assert f" connection=1 {client} agent=a-1 target=web:443 up=4 down=7 ms=" in line
    assert line.endswith('end="endpoint closed"')
