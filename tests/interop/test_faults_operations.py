"""Starting, draining, stopping: the operational faults (O1, O5, O6, O11), shown on the running programs."""

import re
import signal
import socket
import time
from pathlib import Path
from typing import Final

import pytest
from tests.interop.conftest import FAULTY, StartPair
from tests.interop.endpoints import Recorder, echo, endpoint
from tests.support.tunnel_client import DialRefused, Tunnel, receive_exactly, receive_to_end
from tests.support.tunnel_pair import Daemon, Shape, TunnelPair, wait_until

pytestmark = pytest.mark.real

MODES: Final = ["grpc", "http-connect"]
# Our own flag; upstream's agent never leaves by itself (O6) and has no such thing.
LINGER: Final = ["--drain-linger=3s"] if FAULTY == "ours" else []


def _say(tunnel: Tunnel, message: bytes) -> None:
    tunnel.send(message)
    assert receive_exactly(tunnel, len(message)) == message


def test_o1_any_configured_strategy_with_an_agent_makes_the_server_ready(start_pair: StartPair) -> None:
    pair = start_pair(
        Shape(FAULTY, FAULTY),
        server_flags=["--proxy-strategies=destHost,defaultRoute"],
        agent_flags=["--agent-identifiers=default-route=true"],
    )
    assert pair.server_health("/readyz") == (200, "ok")
    with endpoint(echo) as address:
        tunnel = pair.frontend().open(address)
        _say(tunnel, b"by the default route")
        tunnel.close()


def test_a_server_without_agents_is_healthy_and_not_ready(start_pair: StartPair) -> None:
    pair = start_pair(Shape(FAULTY, FAULTY), agents=False)
    assert pair.server_health("/healthz") == (200, "ok")
    assert pair.server_health("/readyz") == (500, "no connection to any proxy agent")


@pytest.mark.parametrize("mode", MODES)
def test_o5_a_stopping_server_lets_an_active_tunnel_end(start_pair: StartPair, mode: str) -> None:
    pair = start_pair(Shape(FAULTY, FAULTY, mode, "uds"), server_flags=["--graceful-shutdown-timeout=60s"])
    with endpoint(echo) as address:
        tunnel = pair.frontend().open(address)
        _say(tunnel, b"before")
        pair.server.signal(signal.SIGTERM)
        wait_until(lambda: pair.server_health("/readyz")[0] != 200, "the server is unready")
        # Longer than the agent's probe interval, by which upstream's agent leaves a server that says GOAWAY.
        until = time.monotonic() + 2
        while time.monotonic() < until:
            _say(tunnel, b"still here")
            time.sleep(0.1)
        with pytest.raises((OSError, DialRefused)):
            pair.frontend().open(address)
        tunnel.close()
    assert pair.server.wait() == 0
    assert not pair.socket_path.exists()


def test_o5_a_stopping_server_closes_what_has_not_ended_by_the_deadline(start_pair: StartPair) -> None:
    pair = start_pair(Shape(FAULTY, FAULTY, "http-connect", "uds"), server_flags=["--graceful-shutdown-timeout=1s"])
    with endpoint(echo) as address:
        tunnel = pair.frontend().open(address)
        _say(tunnel, b"before")
        pair.server.signal(signal.SIGTERM)
        assert receive_to_end(tunnel) == b""
        tunnel.close()
    assert pair.server.wait() == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_server_without_grace_stops_at_once(start_pair: StartPair, mode: str) -> None:
    pair = start_pair(Shape(FAULTY, FAULTY, mode, "uds"))
    recorder = Recorder()
    with endpoint(recorder) as address:
        tunnel = pair.frontend().open(address)
        pair.server.signal(signal.SIGTERM)
        assert receive_to_end(tunnel) == b""
        tunnel.close()
        assert pair.server.wait() == 0
        assert recorder.ends.get(timeout=40) == 0


def test_o6_a_drained_agent_serves_new_dials_and_leaves_after_its_linger(start_pair: StartPair) -> None:
    pair = start_pair(Shape(FAULTY, FAULTY, "grpc", "uds"), agent_flags=LINGER)
    with endpoint(echo) as address:
        pair.agent.signal(signal.SIGTERM)
        tunnel = pair.frontend().open(address)
        _say(tunnel, b"dialled after the drain")
        # Longer than the linger with a tunnel open: it must stay.
        time.sleep(4)
        _say(tunnel, b"still here")
        tunnel.close()
    assert pair.agent.wait() == 0


def test_o6_a_drained_agent_without_tunnels_leaves(start_pair: StartPair) -> None:
    pair = start_pair(Shape(FAULTY, FAULTY, "grpc", "uds"), agent_flags=LINGER)
    pair.agent.signal(signal.SIGTERM)
    assert pair.agent.wait() == 0


def test_a_drained_agent_is_passed_over_when_there_is_another(start_pair: StartPair) -> None:
    pair = start_pair(Shape(FAULTY, FAULTY, "grpc", "uds"), agent_flags=["--drain-linger=60s"])
    second = Daemon(
        [*_without_ports(pair.agent.command), "--agent-id=a2", *_fresh_ports(pair)], pair.folder / "second-agent.log"
    )
    second.start()
    try:
        wait_until(lambda: pair.server_metric("ready_backend_connections") == 2, "two agents are connected")
        pair.agent.signal(signal.SIGTERM)
        wait_until(lambda: _agents_of_dials(pair) == {"a2"}, "every dial goes to the agent that stays")
    finally:
        second.kill()


def _agents_of_dials(pair: TunnelPair) -> set[str]:
    """Dial a few times and read from the server's log (one line per tunnel) who served."""
    start = pair.server.log.stat().st_size
    with endpoint(echo) as address:
        for _ in range(8):
            pair.frontend().open(address).close()
    wait_until(lambda: len(_tunnel_agents(pair, start)) == 8, "eight tunnels are in the log")
    return set(_tunnel_agents(pair, start))


def _tunnel_agents(pair: TunnelPair, start: int) -> list[str]:
    text = pair.server.log.read_bytes()[start:].decode()
    return re.findall(r"tunnel dial=\d+ .*agent=(\S+)", text)


def _without_ports(command: list[str]) -> list[str]:
    dropped = ("--agent-id", "--health-server-port", "--admin-server-port")
    return [part for part in command if not part.startswith(dropped)]


def _fresh_ports(pair: TunnelPair) -> list[str]:
    # Neither is asked in this test; any free port will do.
    ports = type(pair.ports)()
    return [f"--health-server-port={ports.agent_health}", f"--admin-server-port={ports.agent_admin}"]


def _run_server(pair: TunnelPair, *flags: str) -> tuple[int, str]:
    """Start the pair's server with other flags and return how it ended."""
    daemon = Daemon([*pair.server.command, *flags], pair.folder / "refusing-server.log")
    daemon.start()
    try:
        return daemon.wait(), daemon.log.read_text()
    finally:
        daemon.kill()


@pytest.fixture
def stopped_pair(start_pair: StartPair) -> TunnelPair:
    pair = start_pair(Shape(FAULTY, FAULTY), agents=False)
    pair.server.kill()
    return pair


def test_o11_a_socket_path_that_cannot_be_bound_is_a_clean_refusal(stopped_pair: TunnelPair, tmp_path: Path) -> None:
    code, text = _run_server(stopped_pair, f"--uds-name={tmp_path}/missing/frontend.sock")
    assert code == 1
    assert "missing/frontend.sock" in text
    assert "Traceback" not in text
    assert "panic" not in text


@pytest.mark.parametrize("flag", ["--health-port", "--admin-port", "--agent-port"])
def test_o11_a_port_that_is_taken_is_a_clean_refusal(stopped_pair: TunnelPair, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, text = _run_server(stopped_pair, f"{flag}={port}")
    assert code == 1
    assert "address already in use" in text.lower()
    assert "Traceback" not in text


def test_o11_a_bad_lease_label_is_refused_before_any_listener_opens(stopped_pair: TunnelPair) -> None:
    stopped_pair.socket_path.unlink()
    code, text = _run_server(stopped_pair, "--enable-lease-controller", "--lease-label=nonsense")
    assert code == 1
    assert "nonsense" in text
    assert not stopped_pair.socket_path.exists()
