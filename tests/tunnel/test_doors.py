"""Strangers at the doors of a server: real processes with few files, real TLS connections that ask for nothing."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from tests.support.in_process import echo, listening
from tests.support.tunnel_client import ConnectDial, DialRefused, assert_echoes
from tests.support.tunnel_pair import Shape, TunnelPair, metric, wait_until
from tests.support.tunnel_pki import TunnelPki

from umbilical.tunnel.unadmitted import MOST_UNADMITTED

SECONDS: Final = 30.0
FEW_FILES: Final = 64

Pairs = Callable[..., TunnelPair]


@pytest.fixture
def crowd() -> Iterator[ExitStack]:
    """What strangers hold open; closed at the end."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def pairs(tunnel_pki: TunnelPki, tmp_path: Path) -> Iterator[Pairs]:
    """Makes a server and an agent of which the server starts with a limit of open files, `soft:hard`."""
    made: list[TunnelPair] = []

    def make(files: str, mode: str = "http-connect") -> TunnelPair:
        pair = TunnelPair(Shape(mode=mode), tunnel_pki, tmp_path)
        for daemon in (pair.server, pair.agent):
            daemon.command[:0] = ["prlimit", f"--nofile={files}"]
        made.append(pair)
        return pair

    yield make
    for pair in made:
        pair.stop()


def knock(pair: TunnelPair, crowd: ExitStack) -> socket.socket:
    """A TCP connection to the agents' port that says nothing."""
    tcp = socket.create_connection(("127.0.0.1", pair.ports.agent), timeout=SECONDS)
    return crowd.enter_context(tcp)


def fill(pair: TunnelPair, crowd: ExitStack, count: int) -> int:
    """So many connections, which finish TLS as long as the server lets them in; how many did."""
    context = pair.pki.authority.client_context(pair.pki.agent, ["h2"])
    finished, waiting = 0, False
    for _ in range(count):
        tcp = knock(pair, crowd)
        tcp.settimeout(0.5)
        try:
            if not waiting:
                crowd.enter_context(context.wrap_socket(tcp, server_hostname="127.0.0.1"))
                finished += 1
        except OSError:
            waiting = True
    return finished


def assert_client_is_answered(pair: TunnelPair) -> None:
    """There is no agent: the answer is a refusal, which comes at once."""
    with pytest.raises(DialRefused):
        pair.frontend().open("127.0.0.1:1", SECONDS)


def lines_with(pair: TunnelPair, text: str) -> list[str]:
    return [line for line in pair.server.log.read_text().splitlines() if text in line]


def test_connections_that_never_call_keep_neither_clients_nor_health_nor_an_agent_out(
    pairs: Pairs, crowd: ExitStack
) -> None:
    pair = pairs(f"{FEW_FILES}:{FEW_FILES}")
    pair.start_server()
    assert fill(pair, crowd, FEW_FILES) > 0
    assert pair.server_health("/healthz") == (200, "ok")
    assert_client_is_answered(pair)
    pair.start_agent()
    with listening() as endpoint:
        tunnel = pair.frontend().open(endpoint.serve(echo).address)
        assert_echoes(tunnel)
        tunnel.close()


def test_exhausted_files_are_one_line_at_the_begin_and_one_at_the_end_and_health_answers(
    pairs: Pairs, crowd: ExitStack
) -> None:
    pair = pairs(f"{FEW_FILES}:{FEW_FILES}")
    pair.start()
    held = [crowd.enter_context(pair.frontend().connect()) for _ in range(2 * FEW_FILES)]
    wait_until(lambda: bool(lines_with(pair, "UMB420")), "the shortage is logged")
    for _ in range(5):
        assert pair.server_health("/healthz") == (200, "ok")
        time.sleep(0.2)
    lines = pair.server.log.read_text().splitlines()
    assert len(lines_with(pair, "UMB420")) == 1
    assert lines_with(pair, "pausing") == []
    for sock in held:
        sock.close()
    wait_until(lambda: bool(lines_with(pair, "suffice again after")), "the end is logged")
    assert len(lines_with(pair, "UMB420")) == 1
    assert len(lines_with(pair, "suffice again after")) == 1
    assert len(lines) < 20


def test_clients_that_wait_for_a_free_file_are_served_when_there_is_one(pairs: Pairs, crowd: ExitStack) -> None:
    pair = pairs(f"{FEW_FILES}:{FEW_FILES}")
    pair.start()
    held = [crowd.enter_context(pair.frontend().connect()) for _ in range(2 * FEW_FILES)]
    with listening() as endpoint:
        dial = ConnectDial(pair.frontend().connect(), endpoint.serve(echo).address)
        for sock in held:
            sock.close()
        assert_echoes(dial.finish())


def test_an_agent_comes_back_while_clients_hold_all_their_files(pairs: Pairs, crowd: ExitStack) -> None:
    pair = pairs(f"{FEW_FILES}:{FEW_FILES}")
    pair.start_server()
    for _ in range(2 * FEW_FILES):
        crowd.enter_context(pair.frontend().connect())
    wait_until(lambda: bool(lines_with(pair, "UMB420")), "the shortage is logged")
    pair.start_agent()


@pytest.mark.parametrize("name", ["server", "agent"])
def test_the_soft_limit_of_files_is_raised_to_the_hard_one_and_shown(pairs: Pairs, name: str) -> None:
    pair = pairs("256:3000")
    pair.start()
    port = pair.ports.server_admin if name == "server" else pair.ports.agent_health
    assert metric(port, "process_max_fds") == 3000
    daemon = pair.server if name == "server" else pair.agent
    limits = Path(f"/proc/{daemon.pid}/limits").read_text().splitlines()
    assert next(line.split()[3:5] for line in limits if line.startswith("Max open files")) == ["3000", "3000"]


def test_a_flood_of_silent_connections_keeps_an_agent_out_for_seconds_at_most(pairs: Pairs, crowd: ExitStack) -> None:
    pair = pairs("4096:4096")
    pair.start_server()
    for _ in range(3 * MOST_UNADMITTED):
        knock(pair, crowd)
    assert pair.server_health("/healthz") == (200, "ok")
    pair.start_agent()
    assert pair.server.open_files() < 2 * MOST_UNADMITTED
    assert 1 <= len(lines_with(pair, "UMB422")) <= 3


def test_an_agents_health_answers_while_its_dials_use_up_all_files(pairs: Pairs, crowd: ExitStack) -> None:
    pair = pairs("4096:4096")
    pair.agent.command[1] = f"--nofile={FEW_FILES}:{FEW_FILES}"
    pair.start()
    refusals: list[str] = []
    with listening() as endpoint:
        address = endpoint.serve(echo).address
        for _ in range(2 * FEW_FILES):
            try:
                crowd.callback(pair.frontend().open(address).close)
            except DialRefused as refusal:
                refusals.append(str(refusal))
        assert pair.agent_health("/healthz") == (200, "ok")
        assert len(refusals) >= FEW_FILES
        assert all("too many open files" in text for text in refusals)
        crowd.close()
