"""Peers that are not admitted: their deadline, their number, and their handshakes."""

import asyncio
import gc
import logging
import socket
import ssl
import time
from contextlib import suppress
from typing import Final

import pytest
from tests.support.fixture_types import Logged, Patch
from tests.support.in_process import PATIENCE_SECONDS, RunningServer, Stage, echo
from tests.support.scripted_peers import (
    CONNECT_PATH,
    ScriptedAgent,
    open_agent_channel,
    open_client_channel,
    open_proxy_stream,
    refusal,
)
from tests.support.tunnel_client import assert_echoes
from tests.wire.http2.ends import frame, greeting

from umbilical.tunnel.agent_transport import AgentTransport
from umbilical.tunnel.interfaces import AuthenticationRefused
from umbilical.tunnel.server_core import FIRST_CALL_SECONDS
from umbilical.tunnel.settings import ListenAddress
from umbilical.tunnel.unadmitted import (
    HANDSHAKE_STEPS_PER_TURN,
    IDLE_SECONDS,
    MOST_UNADMITTED,
    PAUSE_SECONDS,
    SILENT_SECONDS,
)
from umbilical.wire.http2 import frames
from umbilical.wire.http2.flood_guard import CONTROL_BURST

HONEST: Final = "127.0.0.3"
CROWDED: Final = "127.0.0.2"


def skip_deadline(stage: Stage, monkeypatch: Patch) -> None:
    stage.skip(FIRST_CALL_SECONDS + 0.1, monkeypatch)


def connections(server: RunningServer) -> int:
    """How many agents' and gRPC clients' connections the server has."""
    return server.stage.call(lambda: len(server.server.core.transports))


def wait_for_connections(server: RunningServer, count: int) -> None:
    server.stage.eventually(lambda: len(server.server.core.transports) == count)


def wait_for_handshakes(server: RunningServer) -> None:
    """All peers have finished TLS."""
    server.stage.eventually(lambda: len(server.server.core.handshakes) == 0)


def test_a_peer_that_finishes_tls_and_never_calls_is_cut_with_one_line_per_host(
    stage: Stage, monkeypatch: Patch, caplog: Logged
) -> None:
    server = stage.start_server()
    ScriptedAgent(server, "honest")
    silent = [open_agent_channel(server) for _ in range(5)]
    wait_for_connections(server, 6)
    wait_for_handshakes(server)
    skip_deadline(stage, monkeypatch)
    wait_for_connections(server, 1)
    for channel in silent:
        channel.take_what_came()
        assert channel.ended
    assert server.gauges().connect_streams == 1
    told = [message for message in caplog.messages if message.startswith("UMB421")]
    assert len(told) == 1
    assert told[0].endswith(f"no valid call within {FIRST_CALL_SECONDS:g} s")


def test_a_peer_that_is_not_admitted_is_not_reported_as_a_silent_agent(
    stage: Stage, monkeypatch: Patch, caplog: Logged
) -> None:
    server = stage.start_server()
    open_agent_channel(server)
    wait_for_connections(server, 1)
    wait_for_handshakes(server)
    for _ in range(4):
        stage.skip(1.0, monkeypatch)
    assert connections(server) == 1
    assert caplog.messages == []


def test_a_dropped_peer_frees_its_memory_at_once(stage: Stage, monkeypatch: Patch) -> None:
    """A peer has a block of 256 KiB: the next run of the garbage collector may be thousands of peers away."""
    server = stage.start_server()
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            open_agent_channel(server)
        wait_for_connections(server, 3)
        wait_for_handshakes(server)
        skip_deadline(stage, monkeypatch)
        wait_for_connections(server, 0)
        stage.eventually(lambda: not any(isinstance(each, AgentTransport) for each in gc.get_objects()))
    finally:
        gc.enable()


def test_calls_that_are_refused_gain_no_time(stage: Stage, monkeypatch: Patch) -> None:
    server = stage.start_server()
    assert refusal(server, [("agentid", "a")], "/Some/Thing")[0] == "12"
    assert refusal(server, [])[0] == "2"
    wait_for_connections(server, 2)
    skip_deadline(stage, monkeypatch)
    wait_for_connections(server, 0)


class SlowAuthenticator:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers = asyncio.Event()
        self.is_good = True

    async def authenticate(self, token: str) -> None:
        self.asked += 1
        await self.answers.wait()
        if not self.is_good:
            raise AuthenticationRefused("no")


@pytest.mark.parametrize("is_good", [True, False])
def test_an_agent_whose_token_is_under_review_is_cut_only_if_that_fails(
    stage: Stage, monkeypatch: Patch, is_good: bool
) -> None:
    authenticator = SlowAuthenticator()
    authenticator.is_good = is_good
    server = stage.start_server(authenticator=authenticator)
    stream = open_agent_channel(server).open(CONNECT_PATH, [("agentid", "a"), ("authorization", "Bearer x")])
    stage.eventually(lambda: authenticator.asked == 1)
    skip_deadline(stage, monkeypatch)
    stage.call(lambda: None)
    assert connections(server) == 1
    stage.call(authenticator.answers.set)
    if is_good:
        assert "serverid" in stream.wait_for_headers()
        skip_deadline(stage, monkeypatch)
        assert connections(server) == 1
    else:
        assert stream.ended_with()["grpc-status"] == "2"
        skip_deadline(stage, monkeypatch)
        wait_for_connections(server, 0)


def test_an_agent_that_ended_its_stream_and_calls_no_more_is_cut(stage: Stage, monkeypatch: Patch) -> None:
    server = stage.start_server()
    agent = ScriptedAgent(server, "a")
    agent.stream.finish()
    server.wait_for_agents(0)
    assert connections(server) == 1
    skip_deadline(stage, monkeypatch)
    wait_for_connections(server, 0)


def test_a_grpc_client_over_tls_must_call_and_one_on_the_unix_socket_may_wait(stage: Stage, monkeypatch: Patch) -> None:
    over_tls, unix = stage.start_server("grpc", tcp=True), stage.start_server("grpc")
    open_client_channel(over_tls)
    idle = open_client_channel(unix)
    open_proxy_stream(over_tls)
    wait_for_connections(over_tls, 2)
    wait_for_connections(unix, 1)
    wait_for_handshakes(over_tls)
    stage.eventually(lambda: over_tls.server.core.proxy_streams == 1)
    skip_deadline(stage, monkeypatch)
    wait_for_connections(over_tls, 1)
    assert over_tls.gauges().proxy_streams == 1
    idle.catch_up()
    assert connections(unix) == 1


def knock(server: RunningServer, host: str) -> socket.socket:
    """Connect from an address of this machine, and say nothing."""
    port = server.agent_port
    sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS, source_address=(host, 0))
    return server.stage.leftovers.enter_context(sock)


def hosts(server: RunningServer) -> list[str]:
    def look() -> list[str]:
        agents = [each for each in server.server.core.transports if isinstance(each, AgentTransport)]
        return sorted(each.channel.peer().rpartition(":")[0] for each in agents)

    return server.stage.call(look)


def test_too_many_strangers_cost_the_host_with_the_most_of_them_its_oldest(
    stage: Stage, monkeypatch: Patch, caplog: Logged
) -> None:
    server = stage.start_server()
    knock(server, HONEST)
    for _ in range(MOST_UNADMITTED - 1):
        knock(server, CROWDED)
    wait_for_connections(server, MOST_UNADMITTED)
    knock(server, HONEST)
    stage.eventually(lambda: "UMB422" in caplog.text)
    assert hosts(server).count(CROWDED) == MOST_UNADMITTED - 1
    assert stage.call(lambda: {peer.steps for peer in server.server._strangers._peers.values()}) == {0}
    stage.skip(SILENT_SECONDS, monkeypatch)
    stage.eventually(lambda: len(server.server._strangers) == MOST_UNADMITTED)
    stage.eventually(lambda: "UMB421" in caplog.text)
    wanted = [CROWDED] * (MOST_UNADMITTED - 2) + [HONEST] * 2
    assert hosts(server) == wanted
    agent = stage.start_agent(server.agent_port)
    agent.wait_until_ready()


def test_a_crowd_that_goes_on_with_its_handshakes_is_left_in_peace_for_longer(
    stage: Stage, monkeypatch: Patch, caplog: Logged
) -> None:
    """All agents of a cluster connect at once when their server was restarted, often from one address."""
    server = stage.start_server()
    hello = client_hello(stage)
    for _ in range(MOST_UNADMITTED):
        knock(server, CROWDED).sendall(hello)
    wait_for_connections(server, MOST_UNADMITTED)
    knock(server, HONEST)
    stage.eventually(lambda: "UMB422" in caplog.text)
    stage.eventually(lambda: all(peer.steps for peer in server.server._strangers._peers.values()))
    stage.skip(SILENT_SECONDS, monkeypatch)
    stage.call(lambda: None)
    assert hosts(server) == [CROWDED] * MOST_UNADMITTED
    stage.skip(IDLE_SECONDS, monkeypatch)
    stage.eventually(lambda: HONEST in [peer.host for peer in server.server._strangers._peers.values()])
    assert hosts(server).count(CROWDED) == MOST_UNADMITTED - 1


def test_one_network_of_ipv6_addresses_counts_as_one_host(stage: Stage) -> None:
    server = stage.start_server(agent_listen=ListenAddress("", 0))
    with socket.create_connection(("::1", server.agent_port), timeout=PATIENCE_SECONDS):
        knock(server, HONEST)
        wait_for_connections(server, 2)
        found = stage.call(lambda: {peer.host for peer in server.server._strangers._peers.values()})
    assert found == {HONEST, "0" * 16}


def test_admitted_agents_do_not_count_as_strangers(stage: Stage) -> None:
    server, _ = stage.start_pair()
    assert stage.call(lambda: len(server.server._strangers)) == 0
    assert stage.call(server.server._strangers.connected) == 1
    assert_echoes(server.frontend.open(stage.endpoint().serve(echo).address))
    stage.agents.pop().stop()
    stage.eventually(lambda: server.server._strangers.connected() == 0)


def client_hello(stage: Stage) -> bytes:
    outgoing = ssl.MemoryBIO()
    tls = stage.pki.authority.client_context(stage.pki.agent, ["h2"])
    handshake = tls.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        handshake.do_handshake()
    return outgoing.read()


def is_answered(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


def test_a_turn_takes_few_steps_of_handshakes_and_all_are_served_in_the_end(stage: Stage) -> None:
    server = stage.start_server()
    crowd = [knock(server, "127.0.0.1") for _ in range(3 * HANDSHAKE_STEPS_PER_TURN)]
    wait_for_connections(server, len(crowd))
    answered = []
    hello = client_hello(stage)
    with stage.stepping() as turn:
        for sock in crowd:
            sock.sendall(hello)
        for _ in range(4):
            turn()
            answered.append(sum(map(is_answered, crowd)))
    steps = [after - before for before, after in zip([0, *answered], answered, strict=False)]
    assert max(steps) <= 2 * HANDSHAKE_STEPS_PER_TURN
    assert answered[0] < len(crowd)
    assert answered[-1] == len(crowd)


def test_a_host_whose_peer_was_cut_for_a_flood_waits_a_moment_and_others_do_not(
    stage: Stage, monkeypatch: Patch
) -> None:
    server = stage.start_server()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    tls = stage.pki.authority.client_context(stage.pki.agent, ["h2"])
    with tls.wrap_socket(knock(server, CROWDED), server_hostname="127.0.0.1") as flood, suppress(OSError):
        flood.sendall(greeting() + frame(frames.PING, 0, 0, bytes(8)) * 2 * CONTROL_BURST)
        wait_for_connections(server, 0)
    hello = client_hello(stage)
    paused, other = knock(server, CROWDED), knock(server, HONEST)
    paused.sendall(hello)
    other.sendall(hello)
    stage.eventually(lambda: is_answered(other) and len(server.server._strangers._held) == 1)
    assert not is_answered(paused)
    stage.skip(PAUSE_SECONDS, monkeypatch)
    stage.eventually(lambda: is_answered(paused))


def test_a_stranger_that_leaves_while_its_handshake_waits_does_no_harm(stage: Stage, caplog: Logged) -> None:
    caplog.set_level(logging.ERROR)
    server = stage.start_server()
    crowd = [knock(server, "127.0.0.1") for _ in range(3 * HANDSHAKE_STEPS_PER_TURN)]
    wait_for_connections(server, len(crowd))
    hello = client_hello(stage)
    with stage.stepping():
        for sock in crowd:
            sock.sendall(hello)
            sock.close()
    wait_for_connections(server, 0)
    assert stage.call(server.server._strangers.connected) == 0
    assert caplog.messages == []
