"""The agent's end of a tunnel: last bytes, slow and stuck endpoints, dials that are cancelled or wait in line."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support import packet_messages
from tests.support.grpc_channel import GrpcStream
from tests.support.in_process import PATIENCE_SECONDS, RunningAgent, Stage, echo, read_to_end
from tests.support.packet_messages import PacketType
from tests.support.scripted_peers import (
    PAUSE,
    RESUME,
    UNDERSTANDS_PAUSE,
    ScriptedServer,
    control,
    dial_through,
    expect,
    framed,
    packets_so_far,
)
from tests.support.socket_pairs import reset

from umbilical.tunnel.settings import Limits

KIB = 1024


def agent_and_stream(stage: Stage, *, pause: bool = False, **settings: object) -> tuple[RunningAgent, GrpcStream]:
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port, **settings)
    stream = server.accept(metadata=[UNDERSTANDS_PAUSE] if pause else [])
    agent.wait_until_ready()
    return agent, stream


def opened(
    stage: Stage, *, pause: bool = False, **settings: object
) -> tuple[RunningAgent, GrpcStream, int, socket.socket]:
    """An agent with one tunnel: also the stream that carries it, its connection ID, and the endpoint's socket."""
    agent, stream = agent_and_stream(stage, pause=pause, **settings)
    endpoint = stage.endpoint()
    return agent, stream, dial_through(stream, endpoint.address), endpoint.accept()


@contextlib.contextmanager
def black_hole() -> Iterator[str]:
    """An address whose connects get no answer: the backlog of its listener is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as fillers:
        for _ in range(4):
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_data_goes_to_the_endpoint_and_back_and_its_end_is_told_behind_its_bytes(stage: Stage) -> None:
    agent, stream, connection_id, far = opened(stage)
    stream.send(packet_messages.data(connection_id, b"up"))
    assert far.recv(10) == b"up"
    far.sendall(b"down")
    assert expect(stream, PacketType.DATA).data.data == b"down"
    far.sendall(b"last")
    far.close()
    assert expect(stream, PacketType.DATA).data.data == b"last"
    answer = expect(stream, PacketType.CLOSE_RSP).closeResponse
    assert (answer.connectID, answer.error) == (connection_id, "")
    agent.wait_until_idle()


def test_what_is_queued_is_flushed_before_the_close_and_the_answer_comes_after(stage: Stage) -> None:
    """The endpoint does not read before the close was asked for; every byte arrives, then the end."""
    agent, stream, connection_id, far = opened(stage)
    sent = bytes(range(256)) * 4 * KIB * 8  # 8 MiB: more than the socket takes
    for start in range(0, len(sent), 32 * KIB):
        stream.send(packet_messages.data(connection_id, sent[start : start + 32 * KIB]))
    stream.send(packet_messages.close_request(connection_id))
    assert packets_so_far(stream) == []
    assert read_to_end(far) == sent
    assert expect(stream, PacketType.CLOSE_RSP).closeResponse.error == ""
    agent.wait_until_idle()


def test_an_endpoint_that_never_takes_its_last_bytes_is_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, stream, connection_id, _far = opened(stage)
    _close_behind_more_than_is_taken(stream, connection_id)
    assert packets_so_far(stream) == []
    stage.skip(61, monkeypatch)
    assert expect(stream, PacketType.CLOSE_RSP).closeResponse.connectID == connection_id
    agent.wait_until_idle()


def test_an_endpoint_that_resets_while_it_is_flushed_ends_the_close(stage: Stage) -> None:
    agent, stream, connection_id, far = opened(stage)
    _close_behind_more_than_is_taken(stream, connection_id)
    assert packets_so_far(stream) == []
    reset(far)
    assert expect(stream, PacketType.CLOSE_RSP).closeResponse.connectID == connection_id
    agent.wait_until_idle()


def test_an_endpoint_that_resets_ends_the_tunnel_with_an_empty_error(stage: Stage) -> None:
    agent, stream, connection_id, far = opened(stage)
    reset(far)
    answer = expect(stream, PacketType.CLOSE_RSP).closeResponse
    assert (answer.connectID, answer.error) == (connection_id, "")
    agent.wait_until_idle()


def test_packets_to_the_server_are_larger_than_upstreams_four_kib(stage: Stage) -> None:
    _, stream, _, far = opened(stage)
    with stage.stepping() as turn:
        far.sendall(bytes(14 * KIB))
        turn()
    assert len(expect(stream, PacketType.DATA).data.data) == 14 * KIB


def test_a_server_that_understands_is_asked_to_pause_and_to_resume(stage: Stage) -> None:
    limits = Limits(tunnel_buffer_bytes=4 * KIB * KIB, pause_above_bytes=256 * KIB)
    _, stream, connection_id, far = opened(stage, pause=True, limits=limits)
    sent = 0
    asked: list[int] = []
    while not asked:
        stream.send(packet_messages.data(connection_id, bytes(32 * KIB)))
        sent += 32 * KIB
        asked = [packet.type for packet in packets_so_far(stream)]
        assert sent < 64 * KIB * KIB
    assert asked == [PAUSE]
    received = 0
    while received < sent:
        received += len(far.recv(1 << 18))
    assert [packet.type for packet in packets_so_far(stream)] == [RESUME]


def test_without_pause_the_offender_alone_is_given_up_past_its_cap_with_a_reason(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(tunnel_buffer_bytes=1024 * KIB, pause_above_bytes=256 * KIB)
    agent, stream = agent_and_stream(stage, limits=limits)
    stuck, healthy = stage.endpoint(), stage.endpoint().serve(echo)
    stuck_id, healthy_id = dial_through(stream, stuck.address, 1), dial_through(stream, healthy.address, 2)
    while stage.call(lambda: _waiting_bytes(agent)) <= limits.tunnel_buffer_bytes:
        stream.send(packet_messages.data(stuck_id, bytes(32 * KIB)))
    assert packets_so_far(stream) == []
    stage.skip(6, monkeypatch)
    answer = expect(stream, PacketType.CLOSE_RSP).closeResponse
    assert answer.connectID == stuck_id
    assert answer.error == f"endpoint {stuck.address} reads nothing: more than {1024 * KIB} bytes waited 5 s"
    stream.send(packet_messages.data(healthy_id, b"and you?"))
    assert expect(stream, PacketType.DATA).data.data == b"and you?"
    stage.eventually(lambda: agent.agent.gauges().open_endpoint_connections == 1)


def _waiting_bytes(agent: RunningAgent) -> int:
    """What the agent holds for its slowest endpoint."""
    links = list(agent.agent._links.values())
    endpoints: list[Any] = [record.endpoint for link in links for record in link.session.connections.values()]
    return max(int(endpoint._outlet.waiting_bytes()) for endpoint in endpoints)


def test_without_pause_an_endpoint_that_is_slow_but_moves_gets_every_byte(stage: Stage) -> None:
    """Its server is held back by the window of the stream; ten times the cap arrives."""
    limits = Limits(tunnel_buffer_bytes=1024 * KIB, pause_above_bytes=256 * KIB)
    agent, stream, connection_id, far = opened(stage, limits=limits)
    sending = threading.Thread(target=_send_packets, args=(stream, connection_id, 640))
    sending.start()
    received = most = 0
    while received < 640 * 32 * KIB and (octets := far.recv(64 * KIB)):
        received += len(octets)
        if received % (512 * KIB) < len(octets):
            time.sleep(0.005)
            most = max(most, stage.call(lambda: _waiting_bytes(agent)))
    sending.join(PATIENCE_SECONDS)
    assert received == 640 * 32 * KIB
    assert most <= limits.tunnel_buffer_bytes + 5 * 1024 * KIB  # what the window had let out already


def _send_packets(stream: GrpcStream, connection_id: int, count: int) -> None:
    for _ in range(count):
        stream.send(packet_messages.data(connection_id, bytes(32 * KIB)))


def _close_behind_more_than_is_taken(stream: GrpcStream, connection_id: int) -> None:
    _send_packets(stream, connection_id, 400)
    stream.send(packet_messages.close_request(connection_id))


def test_a_paused_endpoint_is_not_read_and_goes_on_after_resume(stage: Stage) -> None:
    _, stream, connection_id, far = opened(stage, pause=True)
    stream.send_raw(control(PAUSE, connection_id))
    assert packets_so_far(stream) == []
    far.sendall(b"held")
    far.close()
    assert packets_so_far(stream) == []
    stream.send_raw(control(RESUME, connection_id))
    assert expect(stream, PacketType.DATA).data.data == b"held"
    expect(stream, PacketType.CLOSE_RSP)


def test_a_name_that_resolves_after_the_cancel_is_not_dialled(stage: Stage) -> None:
    agent, stream = agent_and_stream(stage)
    endpoint = stage.endpoint()
    stream.send(packet_messages.dial_request("late.example:1", 7))
    stage.eventually(lambda: len(agent.resolver.asked) == 1)
    stream.send(packet_messages.close_dial(7))
    agent.wait_until_idle()
    stage.call(lambda: agent.resolver.answer(endpoint.address))
    assert packets_so_far(stream) == []
    assert agent.gauges().open_endpoint_connections == 0


def test_a_dial_that_takes_too_long_fails_with_gos_words(stage: Stage) -> None:
    agent, stream = agent_and_stream(stage, dial_timeout_seconds=0.2)
    with black_hole() as address:
        stream.send(packet_messages.dial_request(address, 7))
        answer = expect(stream, PacketType.DIAL_RSP).dialResponse
        assert (answer.random, answer.connectID, answer.error) == (7, 0, f"dial tcp {address}: i/o timeout")
    agent.wait_until_idle()
    assert stage.call(lambda: dict(agent.agent.metrics.endpoint_dial_failures)) == {"timeout": 1}


def test_dials_beyond_the_cap_wait_in_line(stage: Stage) -> None:
    agent, stream = agent_and_stream(stage, limits=Limits(concurrent_dials=3))
    endpoint = stage.endpoint()
    stream.send_raw(b"".join(framed(packet_messages.dial_request(f"n{n}.example:1", n)) for n in range(10)))
    stage.eventually(lambda: len(agent.resolver.asked) == 3)
    assert packets_so_far(stream) == []
    assert stage.call(lambda: len(agent.resolver.asked)) == 3
    for asked in (3, 3, 1, 0):
        stage.call(lambda: agent.resolver.answer(endpoint.address))
        stage.eventually(lambda: len(agent.resolver.asked) == asked)  # noqa: B023
    answers = [expect(stream, PacketType.DIAL_RSP).dialResponse for _ in range(10)]
    assert {answer.random for answer in answers} == set(range(10))
    assert all(answer.error == "" for answer in answers)


def test_a_close_is_not_kept_waiting_by_a_neighbours_dial_or_flush(stage: Stage) -> None:
    _, stream = agent_and_stream(stage)
    stuck, healthy = stage.endpoint(), stage.endpoint()
    stuck_id, healthy_id = dial_through(stream, stuck.address, 1), dial_through(stream, healthy.address, 2)
    stream.send(packet_messages.dial_request("never.answered:1", 3))
    _close_behind_more_than_is_taken(stream, stuck_id)
    stream.send(packet_messages.close_request(healthy_id))
    assert expect(stream, PacketType.CLOSE_RSP).closeResponse.connectID == healthy_id
    assert packets_so_far(stream) == []


def test_control_goes_ahead_of_bulk(stage: Stage) -> None:
    """The server reads nothing while an endpoint sends without end; a dial is answered within the first window."""
    agent, stream = agent_and_stream(stage)
    busy, other = stage.endpoint(), stage.endpoint()
    dial_through(stream, busy.address, 1)
    far = busy.accept()
    far.settimeout(0.2)
    with contextlib.suppress(TimeoutError):
        while True:
            far.sendall(bytes(64 * KIB))
    # Not by `stream.send`, which reads what waits and so gives credit for more.
    stream.channel.http2.send_data(stream.stream_id, framed(packet_messages.dial_request(other.address, 2)))
    stream.channel.flush()
    stage.eventually(lambda: agent.agent.gauges().open_endpoint_connections == 2)  # its answer is under way
    ahead = 0
    while (packet := stream.receive(PATIENCE_SECONDS)).type == PacketType.DATA:
        ahead += len(packet.data.data)
    assert packet.type == PacketType.DIAL_RSP
    assert ahead <= 1200 * KIB, "the dial's answer stood behind more than what the window had let out already"
