"""A server as a whole: tokens, listeners, and how it leaves."""

import asyncio
import os
import socket
import stat
import time
from pathlib import Path

import pytest
from tests.support import packet_messages
from tests.support.in_process import LOOPBACK, PATIENCE_SECONDS, RunningServer, Stage, echo
from tests.support.packet_messages import PacketType
from tests.support.scripted_peers import (
    CONNECT_PATH,
    UNDERSTANDS_PAUSE,
    ScriptedAgent,
    open_agent_channel,
    packets_so_far,
    refusal,
    scripted_pair,
)
from tests.support.tunnel_client import ConnectDial, DialRefused, assert_echoes

from umbilical.fault import StartupError
from umbilical.tunnel.interfaces import AuthenticationRefused
from umbilical.tunnel.server import Server
from umbilical.tunnel.settings import CapSettings, FrontendMode, ListenAddress, ServerSettings, TlsFiles, UnixFrontend

MODES = pytest.mark.parametrize("mode", ["http-connect", "grpc"])


def unix_server(stage: Stage) -> tuple[RunningServer, Path]:
    server = stage.start_server()
    assert server.frontend.unix_path is not None
    return server, server.frontend.unix_path


class ScriptedAuthenticator:
    """Lets the good token in; the slow one waits for the test; the rest is refused."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.patience = asyncio.Event()

    async def authenticate(self, token: str) -> None:
        self.asked.append(token)
        if token == "slow":
            await self.patience.wait()
        elif token == "crash":
            raise RuntimeError("a bug of ours")
        elif token != "good":
            raise AuthenticationRefused("Failed to validate authentication token, err:lookup failed: not valid")


def guarded(stage: Stage) -> tuple[RunningServer, ScriptedAuthenticator]:
    authenticator = ScriptedAuthenticator()
    return stage.start_server(authenticator=authenticator), authenticator


def test_a_good_token_is_let_in(stage: Stage) -> None:
    authenticator = ScriptedAuthenticator()
    _, agent = scripted_pair(stage, authenticator=authenticator, metadata=[("authorization", "Bearer good")])
    assert "serverid" in agent.hello
    assert authenticator.asked == ["good"]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "Authentication context was not found in metadata"),
        (["Bearer bad"], "Failed to validate authentication token, err:lookup failed: not valid"),
    ],
)
def test_any_other_token_is_refused_in_upstreams_words(stage: Stage, values: list[str], text: str) -> None:
    server = stage.start_server(authenticator=ScriptedAuthenticator())
    metadata = [("agentid", "a"), *[("authorization", value) for value in values]]
    assert refusal(server, metadata) == ("2", text)
    assert not stage.call(server.server.is_ready)


def test_an_authenticator_that_fails_for_its_own_reasons_refuses_the_agent(stage: Stage) -> None:
    server = stage.start_server(authenticator=ScriptedAuthenticator())
    status, message = refusal(server, [("agentid", "a"), ("authorization", "Bearer crash")])
    assert status == "2"
    assert "crash" not in message


def test_a_slow_review_keeps_one_agent_waiting_and_no_other(stage: Stage) -> None:
    server, authenticator = guarded(stage)
    slow = open_agent_channel(server).open(CONNECT_PATH, [("agentid", "slow"), ("authorization", "Bearer slow")])
    ScriptedAgent(server, "good", metadata=[("authorization", "Bearer good")])
    assert packets_so_far(slow) == []
    assert slow.response_headers is None
    assert server.gauges().connect_streams == 1
    stage.call(authenticator.patience.set)
    assert "serverid" in slow.wait_for_headers()
    server.wait_for_agents(2)


@pytest.mark.parametrize("how", ["connection", "reset", "end"])
def test_an_agent_that_left_during_its_review_is_not_let_in(stage: Stage, how: str) -> None:
    server, authenticator = guarded(stage)
    stream = open_agent_channel(server).open(CONNECT_PATH, [("agentid", "a"), ("authorization", "Bearer slow")])
    stage.eventually(lambda: authenticator.asked == ["slow"])
    if how == "connection":
        stream.channel.close()
        stage.eventually(lambda: not server.server.core.transports)
    elif how == "reset":
        stream.cancel()
        packets_so_far(stream)
    else:
        stream.finish()
        assert stream.ended_with()[":status"] == "200"
    stage.call(authenticator.patience.set)
    stage.call(lambda: None)
    assert server.gauges().connect_streams == 0
    assert not stage.call(server.server.is_ready)


def test_metadata_is_judged_before_the_token(stage: Stage) -> None:
    server, authenticator = guarded(stage)
    assert refusal(server, [("authorization", "Bearer good")])[1] == "expected one agent ID in the context, got []"
    assert authenticator.asked == []


def test_the_unix_socket_is_for_owner_and_group_and_goes_with_the_server(stage: Stage) -> None:
    server, path = unix_server(stage)
    mode = os.stat(path).st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o770
    stage.call(server.server.close)
    assert not path.exists()


def test_a_server_that_leaves_lets_its_successors_socket_stand(stage: Stage) -> None:
    server, path = unix_server(stage)
    stage.call(server.server.stop_accepting)
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(path))
        stage.call(server.server.close)
        assert path.exists()


def test_a_socket_that_another_server_has_replaced_is_the_others_to_remove(stage: Stage) -> None:
    server, path = unix_server(stage)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        stage.call(server.server.stop_accepting)
        assert path.exists()


def test_whoever_has_connected_before_a_server_leaves_is_still_served(stage: Stage) -> None:
    server, _ = stage.start_pair()
    address = stage.endpoint().serve(echo).address
    with stage.stepping() as turn:
        waiting = server.frontend.connect()  # in the backlog: nobody turns the loop
        server.server.stop_accepting()
        turn()
    tunnel = ConnectDial(waiting, address).finish()
    assert_echoes(tunnel, b"hello")


def test_a_client_without_a_certificate_gets_no_tunnel(stage: Stage) -> None:
    server = stage.start_server(tcp=True)
    context = stage.pki.authority.client_context(None, ["http/1.1"])
    tcp = socket.create_connection(("127.0.0.1", server.frontend.port), timeout=PATIENCE_SECONDS)
    with context.wrap_socket(tcp, server_hostname="127.0.0.1") as tls, pytest.raises(OSError, match=r"(?i)certificate"):
        tls.recv(1)
    server.wait_until_quiet()


def test_a_listener_that_cannot_open_leaves_the_other_closed_too(stage: Stage) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    tls = TlsFiles(stage.pki.server.certificate, stage.pki.server.key, stage.pki.authority.certificate_file)
    with taken:
        port = taken.getsockname()[1]
        in_the_way = stage.folder / "file"
        in_the_way.write_text("not a socket")
        free = UnixFrontend(stage.folder / "free.sock")
        for frontend, agents in (
            (free, ListenAddress("127.0.0.1", port)),
            (UnixFrontend(in_the_way), LOOPBACK),
            (UnixFrontend(stage.folder / "no" / "such" / "folder.sock"), LOOPBACK),
        ):
            settings = ServerSettings("s", frontend, agents, tls, FrontendMode.GRPC)
            server = Server(settings, stage.loop.data_plane, None)
            with pytest.raises(StartupError):
                stage.call(server.listen)
            stage.call(server.close)
    assert stage.watched() == 0
    assert in_the_way.read_text() == "not a socket"
    assert not free.path.exists()


@MODES
def test_a_server_that_leaves_is_unready_and_takes_nobody_while_tunnels_end(stage: Stage, mode: str) -> None:
    server, _ = stage.start_pair(mode)
    tunnel = server.frontend.open(stage.endpoint().serve(echo).address)
    assert stage.call(server.server.is_ready)
    stage.call(server.server.stop_accepting)
    assert not stage.call(server.server.is_ready)
    with pytest.raises(OSError, match=r"No such file|refused"):
        server.frontend.connect()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.agent_port), timeout=PATIENCE_SECONDS)
    leaving = asyncio.run_coroutine_threadsafe(server.server.until_idle(PATIENCE_SECONDS), stage.loop)
    assert_echoes(tunnel)
    assert not leaving.done()
    tunnel.close()
    assert leaving.result(PATIENCE_SECONDS)


def test_patience_has_an_end(stage: Stage) -> None:
    server, _ = stage.start_pair()
    tunnel = server.frontend.open(stage.endpoint().serve(echo).address)
    assert not stage.run(server.server.until_idle(0.1))
    stage.call(server.server.close)
    assert tunnel.receive(1) == b""


def test_clients_that_never_asked_for_anything_do_not_delay_the_leave(stage: Stage) -> None:
    server = stage.start_server()
    idle = server.frontend.connect()
    stage.eventually(lambda: len(server.server.core.clients) == 1)
    stage.call(server.server.stop_accepting)
    assert stage.run(server.server.until_idle(PATIENCE_SECONDS))
    idle.close()


def test_our_own_agents_are_sent_elsewhere_at_once_and_upstreams_at_the_end(stage: Stage) -> None:
    """Upstream's agents drop all tunnels at a GOAWAY."""
    server = stage.start_server()
    ours, theirs = ScriptedAgent(server, "ours", metadata=[UNDERSTANDS_PAUSE]), ScriptedAgent(server, "theirs")
    stage.call(server.server.announce_leave)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not ours.channel.goaway:
        ours.channel.pump(deadline)
    theirs.channel.catch_up()
    assert not theirs.channel.goaway
    stage.call(server.server.close)
    while not theirs.channel.goaway:
        theirs.channel.pump(deadline)


def test_a_server_that_closes_tells_grpc_clients_that_their_tunnels_are_over(stage: Stage) -> None:
    server, agent = scripted_pair(stage, "grpc")
    stream = agent.carry_proxied()
    agent.send(packet_messages.data(1, b"last words"))
    stage.eventually(lambda: server.server.core.metrics.from_agent[PacketType.DATA] == 1)
    stage.call(server.server.close)
    kinds = []
    while (packet := stream.receive()) is not None:
        kinds.append(packet.type)
    assert kinds == [PacketType.DATA, PacketType.CLOSE_RSP]
    stage.eventually(lambda: server.server.core.registry.established_count() == 0)


def test_questions_under_way_do_not_outlive_the_server(stage: Stage) -> None:
    server, authenticator = guarded(stage)
    open_agent_channel(server).open(CONNECT_PATH, [("agentid", "a"), ("authorization", "Bearer slow")])
    stage.eventually(lambda: authenticator.asked == ["slow"])
    stage.call(server.server.close)
    stage.eventually(lambda: len(asyncio.all_tasks(stage.loop)) == 1)


def test_a_server_at_its_limits_says_which_to_client_agent_log_and_metrics(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    server, _ = stage.start_pair("http-connect", caps=CapSettings(agents=1, client_tunnels=1))
    stage.start_agent(server.agent_port)
    stage.eventually(lambda: "UMB317" in caplog.text)
    assert "1 agents are connected, --max-agents is 1" in caplog.text
    address = stage.endpoint().serve(echo).address
    first = server.frontend.open(address)
    with pytest.raises(DialRefused, match=r"503 .*uid=\d+ pid=\d+ has --max-client-tunnels=1 tunnels open"):
        server.frontend.open(address)
    first.close()
    server.wait_until_quiet()
    assert_echoes(server.frontend.open(address))
    counted = stage.call(server.server.render_metrics).decode()
    assert 'umbilical_refused_by_limit_total{limit="client_tunnels"} 1' in counted
    assert server.dial_failures() == {"capped": 1}
