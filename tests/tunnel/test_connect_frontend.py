"""Clients that ask with CONNECT: the exact bytes they get, and what becomes of them when things go wrong."""

import socket
import ssl
import time
from typing import Any

import pytest
from tests.support import packet_messages
from tests.support.in_process import PATIENCE_SECONDS, RunningServer, Stage, banner, echo, read_to_end, refused_address
from tests.support.packet_messages import PacketType
from tests.support.scripted_peer import exactly
from tests.support.scripted_peers import PAUSE, ScriptedAgent, control, scripted_pair

ESTABLISHED = b"HTTP/1.1 200 Connection Established\r\n\r\n"


def connect(server: RunningServer, octets: bytes) -> socket.socket:
    sock = server.frontend.connect()
    sock.sendall(octets)
    return sock


def request(address: str, early: bytes = b"") -> bytes:
    return f"CONNECT {address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode() + early


def scripted_tunnel(server: RunningServer, agent: ScriptedAgent, connection_id: int = 1) -> socket.socket:
    client = connect(server, request("web:443"))
    agent.accept_dial(connection_id)
    assert exactly(client, len(ESTABLISHED)) == ESTABLISHED
    return client


def dialling(stage: Stage) -> tuple[RunningServer, ScriptedAgent, socket.socket, int]:
    """A client whose dial has come to the agent; its ID there."""
    server, agent = scripted_pair(stage)
    client = connect(server, request("web:443"))
    return server, agent, client, agent.next_dial().random


def test_success_is_upstreams_line_and_nothing_else(stage: Stage) -> None:
    server, _ = stage.start_pair()
    client = connect(server, request(stage.endpoint().serve(echo).address))
    assert client.recv(1000) == ESTABLISHED
    client.sendall(b"ping")
    assert exactly(client, 4) == b"ping"


def traced(address: str) -> bytes:
    return f"CONNECT {address} HTTP/1.1\r\nHost: h\r\nUmbilical-Trace: 1\r\n\r\n".encode()


def test_a_client_that_asks_learns_the_way_of_its_dial(stage: Stage) -> None:
    server, _ = stage.start_pair()
    client = connect(server, traced(stage.endpoint().serve(banner).address))
    head = b""
    while b"\r\n\r\n" not in head:
        head += client.recv(1)
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 200 Connection Established"
    assert lines[1:3] == ["Umbilical-Server: server-0", "Umbilical-Agent: agent-0"]
    assert 0 <= float(lines[3].removeprefix("Umbilical-Dial-Seconds: ")) < PATIENCE_SECONDS
    assert exactly(client, 8) == b"BANNER\r\n"


def test_a_client_that_asks_learns_the_way_of_a_refused_dial_too(stage: Stage) -> None:
    server, _ = stage.start_pair()
    head, _, body = read_to_end(connect(server, traced(refused_address()))).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 502 Bad Gateway\r\nUmbilical-Server: server-0\r\nUmbilical-Agent: agent-0\r\n")
    assert body.endswith(b"connection refused")


def test_without_an_agent_the_client_gets_500(stage: Stage) -> None:
    server = stage.start_server()
    assert read_to_end(connect(server, request("web:443"))) == (
        b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\n"
        b"currently no tunnels available: No agent available"
    )
    head = read_to_end(connect(server, traced("web:443")))
    assert head.startswith(b"HTTP/1.1 500 Internal Server Error\r\nUmbilical-Server: ")
    assert b"Umbilical-Agent" not in head


def test_a_refused_endpoint_is_a_502_with_gos_words(stage: Stage) -> None:
    server, _ = stage.start_pair()
    address = refused_address()
    assert read_to_end(connect(server, request(address))) == (
        b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
        + f"dial tcp {address}: connect: connection refused".encode()
    )
    server.wait_until_quiet()
    assert server.dial_failures() == {"error_response": 1}


def test_the_agents_words_choose_the_status(stage: Stage) -> None:
    server, agent = scripted_pair(stage)
    client = connect(server, request("web:443"))
    error = "dial tcp 10.0.0.1:1: socket: too many open files"
    agent.send(packet_messages.dial_response(agent.next_dial().random, error=error))
    reply = read_to_end(client)
    assert reply.startswith(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n")
    assert reply.endswith(b"\r\n\r\n" + error.encode())


def test_another_method_is_405_and_the_connection_may_go_on_with_connect(stage: Stage) -> None:
    server, _ = stage.start_pair()
    client = connect(server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    body = b"this proxy only supports CONNECT passthrough\n"
    reply = b""
    while not reply.endswith(body):
        reply += client.recv(1000)
    assert reply.startswith(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain; charset=utf-8\r\n")
    assert b"\r\nX-Content-Type-Options: nosniff\r\n" in reply
    client.sendall(request(stage.endpoint().serve(echo).address))
    assert exactly(client, len(ESTABLISHED)) == ESTABLISHED


def test_another_method_with_a_body_is_405_and_the_end(stage: Stage) -> None:
    server = stage.start_server()
    client = connect(server, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody")
    assert read_to_end(client).startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    server.wait_until_quiet()


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"hello\r\n", b"CONNECT a b c d\r\n\r\n"])
def test_garbage_is_400(stage: Stage, garbage: bytes) -> None:
    server = stage.start_server()
    reply = read_to_end(connect(server, garbage))
    assert reply.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"\r\nConnection: close\r\n" in reply
    assert reply.endswith(b"\r\n\r\n400 Bad Request")
    server.wait_until_quiet()


def test_a_head_may_come_byte_by_byte(stage: Stage) -> None:
    server, _ = stage.start_pair()
    client = server.frontend.connect()
    for octet in request(stage.endpoint().serve(echo).address, b"!"):
        client.send(bytes([octet]))
    assert exactly(client, len(ESTABLISHED) + 1) == ESTABLISHED + b"!"


def test_a_head_that_does_not_come_ends_the_connection(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    server = stage.start_server()
    client = connect(server, b"CONNECT web:443 HTTP/1.1\r\n")
    stage.eventually(lambda: server.server.core.gauges().http_connections == 1)
    stage.skip(61, monkeypatch)
    assert client.recv(100) == b""
    server.wait_until_quiet()


def test_bytes_that_follow_the_request_early_reach_the_endpoint_first(stage: Stage) -> None:
    server, _ = stage.start_pair()
    endpoint = stage.endpoint()
    early = bytes(range(256)) * 1000  # more than a head may be, and than one read takes
    client = connect(server, request(endpoint.address, early))
    far = endpoint.accept()
    assert exactly(client, len(ESTABLISHED)) == ESTABLISHED
    client.sendall(b"later")
    assert exactly(far, len(early) + 5) == early + b"later"


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
def test_a_client_that_ended_its_side_behind_early_bytes_has_them_delivered(stage: Stage, tcp: bool) -> None:
    server, agent = scripted_pair(stage, tcp=tcp)
    client = connect(server, request("web:443", b"early"))
    if isinstance(client, ssl.SSLSocket):
        client.settimeout(0.0)
        with pytest.raises(ssl.SSLWantReadError):
            client.unwrap()  # close_notify goes out, the answer is not waited for
        client.settimeout(PATIENCE_SECONDS)
    socket.socket.shutdown(client, socket.SHUT_WR)
    agent.accept_dial(1)
    assert agent.receive(PacketType.DATA).data.data == b"early"
    assert agent.receive(PacketType.CLOSE_REQ).closeRequest.connectID == 1


def test_the_200_line_comes_first_and_alone(stage: Stage) -> None:
    """DIAL_RSP and DATA arrive in one read: what the client gets in the first turn is the line, no byte more."""
    _, agent, client, dial_id = dialling(stage)
    client.settimeout(0.0)
    with stage.stepping() as turn:
        agent.send(packet_messages.dial_response(dial_id, 1), packet_messages.data(1, b"BANNER\r\n"))
        assert _first_read(client, turn) == ESTABLISHED
        assert _first_read(client, turn) == b"BANNER\r\n"


def _first_read(client: socket.socket, turn: object) -> bytes:
    """Turn until something has come; what one turn brought."""
    assert callable(turn)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        turn()
        try:
            return client.recv(1000)
        except BlockingIOError:
            continue
    raise AssertionError("nothing came")


def test_the_end_of_the_endpoint_in_the_same_read_comes_behind_the_200_line(stage: Stage) -> None:
    _, agent, client, dial_id = dialling(stage)
    agent.send(
        packet_messages.dial_response(dial_id, 1),
        packet_messages.data(1, b"BANNER\r\n"),
        packet_messages.close_response(1),
    )
    assert read_to_end(client) == ESTABLISHED + b"BANNER\r\n"


def test_a_client_that_leaves_during_its_dial_has_it_cancelled(stage: Stage) -> None:
    server, agent, client, dial_id = dialling(stage)
    client.close()
    assert agent.receive(PacketType.DIAL_CLS).closeDial.random == dial_id
    server.wait_until_quiet()
    assert server.dial_failures() == {"frontend_close": 1}


def test_a_tls_client_that_says_goodbye_during_its_dial_has_it_cancelled(stage: Stage) -> None:
    """Its close_notify is no byte of a request: nobody is there any more."""
    server, agent = scripted_pair(stage, tcp=True)
    client = connect(server, request("web:443"))
    assert isinstance(client, ssl.SSLSocket)
    dial_id = agent.next_dial().random
    client.settimeout(0.0)
    with pytest.raises(ssl.SSLWantReadError):
        client.unwrap()
    client.close()
    assert agent.receive(PacketType.DIAL_CLS).closeDial.random == dial_id
    server.wait_until_quiet()


def test_a_client_that_is_gone_when_its_dial_succeeds_leads_to_a_close(stage: Stage) -> None:
    """Half-closed with early bytes it might still listen; that it does not shows when the 200 line fails."""
    server, agent = scripted_pair(stage)
    client = connect(server, request("web:443", b"early"))
    dial_id = agent.next_dial().random
    client.close()
    agent.send(packet_messages.dial_response(dial_id, 1))
    kinds = [agent.stream.receive(PATIENCE_SECONDS).type]
    while kinds[-1] == PacketType.DATA:
        kinds.append(agent.stream.receive(PATIENCE_SECONDS).type)
    assert kinds[-1] == PacketType.CLOSE_REQ
    agent.send(packet_messages.close_response(1))
    server.wait_until_quiet()


def test_a_client_that_closes_has_its_last_byte_delivered_before_the_close(stage: Stage) -> None:
    server, agent = scripted_pair(stage)
    client = scripted_tunnel(server, agent)
    sent = bytes(range(256)) * 391
    client.sendall(sent)
    client.close()
    received = bytearray()
    while (packet := agent.stream.receive(PATIENCE_SECONDS)).type == PacketType.DATA:
        received += packet.data.data
    assert packet.type == PacketType.CLOSE_REQ
    assert bytes(received) == sent
    agent.send(packet_messages.close_response(1))
    server.wait_until_quiet()


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
def test_write_and_close_many_times_and_no_byte_is_missing(stage: Stage, tcp: bool) -> None:
    server, agent = stage.start_pair(tcp=tcp)
    endpoint = stage.endpoint()
    sent = bytes(range(250)) * 400
    for _ in range(40):
        client = connect(server, request(endpoint.address))
        far = endpoint.accept()
        assert exactly(client, len(ESTABLISHED)) == ESTABLISHED
        client.sendall(sent)
        client.close()
        assert read_to_end(far) == sent
        far.close()
    server.wait_until_quiet()
    agent.wait_until_idle()


def test_a_client_that_hung_up_while_the_agent_paused_it_does_not_stay_for_ever(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endpoint may be stuck for good: what the client left behind is waited for, but not without end."""
    server, agent = scripted_pair(stage, metadata=[("umbilical-pause", "1")])
    client = scripted_tunnel(server, agent)
    agent.stream.send_raw(control(PAUSE, 1))
    agent.channel.catch_up()
    client.sendall(b"never taken")
    client.close()
    clients: Any = server.server.core.clients
    stage.eventually(lambda: all(each._channel.hung_up for each in clients))
    stage.skip(61, monkeypatch)
    assert agent.receive(PacketType.CLOSE_REQ).closeRequest.connectID == 1
    agent.send(packet_messages.close_response(1))
    server.wait_until_quiet()
