"""Identities at the two doors of a server: real certificates, real handshakes, rules in a file that changes."""

import logging
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.fixture_types import Logged
from tests.support.grpc_channel import GrpcChannel
from tests.support.in_process import RunningServer, Stage, echo, read_to_end
from tests.support.tunnel_pki import Pair

from umbilical.fault import StartupError
from umbilical.konnectivity.metadata import AgentIdentifiers
from umbilical.tunnel.identities import AgentGate, proved_by
from umbilical.tunnel.settings import TlsFiles

STRATEGIES = ("destHost", "defaultRoute")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "identities"
    path.write_text("CN=proxy-agent default-route=true\nCN=konnectivity-agent-control-plane host=web\n")
    return path


def files_of(stage: Stage, pair: Pair) -> TlsFiles:
    return TlsFiles(pair.certificate, pair.key, stage.pki.authority.certificate_file)


def ask(server: RunningServer, stage: Stage, pair: Pair, alpn: Sequence[str] = ("http/1.1",)) -> socket.socket:
    context = stage.pki.authority.client_context(pair, alpn)
    plain = socket.create_connection(("127.0.0.1", stage.call(server.server.frontend_port)), 60)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def request(address: str) -> bytes:
    return f"CONNECT {address} HTTP/1.1\r\nHost: h\r\n\r\n".encode()


def test_an_agent_that_announces_another_address_is_refused_with_the_reason(
    stage: Stage, rules: Path, caplog: Logged
) -> None:
    caplog.set_level(logging.INFO)
    server = stage.start_server(agent_identities=rules, strategies=STRATEGIES)
    stage.start_agent(server.agent_port, agent_identifiers="default-route=true&host=web")
    stage.eventually(lambda: "UMB346" in caplog.text)
    assert "does not allow the identifier host=web" in caplog.text
    assert server.gauges().connect_streams == 0


def test_an_agent_with_a_certificate_of_its_own_has_rules_of_its_own(stage: Stage, rules: Path) -> None:
    server = stage.start_server(agent_identities=rules, strategies=STRATEGIES)
    pair = stage.pki.authority.client("konnectivity-agent-control-plane")
    stage.start_agent(server.agent_port, agent_identifiers="host=web", tls=files_of(stage, pair))
    server.wait_for_agents()


def test_a_token_is_an_identity_too(tmp_path: Path) -> None:
    path = tmp_path / "rules"
    path.write_text("SA=kube-system/agent *")
    anything = AgentIdentifiers(default_route=True)
    assert AgentGate(path, "SA=kube-system/agent").refusal(None, anything) == ""
    assert AgentGate(path, "SA=kube-system/other").refusal(None, anything) != ""
    assert AgentGate(None, "").refusal(None, anything) == ""


def test_changed_rules_count_for_the_next_agent(stage: Stage, rules: Path) -> None:
    server = stage.start_server(agent_identities=rules, strategies=STRATEGIES)
    rules.write_text("CN=proxy-agent host=web host=api\n")
    stage.start_agent(server.agent_port, agent_identifiers="host=web&host=api")
    server.wait_for_agents()


def test_rules_that_cannot_be_read_leave_those_from_before(stage: Stage, rules: Path, caplog: Logged) -> None:
    server = stage.start_server(agent_identities=rules, strategies=STRATEGIES)
    rules.write_text("nonsense\n")
    stage.start_agent(server.agent_port, agent_identifiers="default-route=true")
    server.wait_for_agents()
    assert "UMB347" in caplog.text
    assert "line 1" in caplog.text


@pytest.mark.parametrize("text", ["nonsense", None])
def test_a_server_does_not_start_on_rules_that_it_cannot_read(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "rules"
    if text is not None:
        path.write_text(text)
    with pytest.raises(StartupError) as refused:
        AgentGate(path, "")
    assert refused.value.code == "UMB347"
    assert str(path) in refused.value.what


def test_an_agents_certificate_opens_no_tunnel_although_the_ca_vouches_for_it(stage: Stage, caplog: Logged) -> None:
    server, _ = stage.start_pair(tcp=True)
    with ask(server, stage, stage.pki.authority.client("konnectivity-agent")) as client:
        client.sendall(request(stage.endpoint().serve(echo).address))
        reply = read_to_end(client)
    assert reply.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert b"CN=konnectivity-agent is an agent's certificate" in reply
    assert "UMB414" in caplog.text


def test_only_named_clients_may_ask_where_names_are_given(stage: Stage) -> None:
    server, _ = stage.start_pair(tcp=True, frontend_identities=("CN=konnectivity-client",))
    address = stage.endpoint().serve(echo).address
    with ask(server, stage, stage.pki.client) as client:
        client.sendall(request(address))
        assert read_to_end(client).startswith(b"HTTP/1.1 403 ")
    with ask(server, stage, stage.pki.authority.client("konnectivity-client")) as client:
        client.sendall(request(address))
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_a_grpc_client_with_an_agents_certificate_is_denied(stage: Stage) -> None:
    server, _ = stage.start_pair("grpc", tcp=True)
    sock = ask(server, stage, stage.pki.authority.client("konnectivity-agent"), ["h2"])
    channel = GrpcChannel(sock, "127.0.0.1")
    stream = channel.open("/ProxyService/Proxy")
    trailers = stream.ended_with()
    assert trailers["grpc-status"] == "7"
    assert "is an agent's certificate" in trailers["grpc-message"]
    sock.close()


def test_identities_are_read_from_subject_and_alternative_names(stage: Stage) -> None:
    authority = stage.pki.authority
    pair = authority.client("somebody", ("system:masters",))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = authority.server_context(stage.pki.server)
    context.load_verify_locations(authority.certificate_file)
    context.verify_mode = ssl.CERT_REQUIRED
    ours = context.wrap_bio(incoming, outgoing, server_side=True)
    theirs = authority.client_context(pair).wrap_bio(outgoing, incoming, server_hostname="127.0.0.1")
    for _ in range(4):
        for end in (theirs, ours):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert set(proved_by(ours)) == {"O=system:masters", "CN=somebody"}
    assert "DNS=localhost" in proved_by(theirs)
    assert proved_by(None) == ()
