"""Every failure between agent and server has a code, logged by the side that knows the cause."""

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from tests.support import packet_messages
from tests.support.fixture_types import Logged, Patch
from tests.support.in_process import Stage, refused_address
from tests.support.odd_certificates import DAY, OddPki
from tests.support.packet_messages import PacketType
from tests.support.registry_driver import NO_CLIENT
from tests.support.scripted_peers import ScriptedAgent, ScriptedServer, expect, open_proxy_stream, scripted_pair
from tests.support.tunnel_client import DialRefused
from tests.support.tunnel_pki import FolderAuthority, Pair, TunnelPki

from umbilical.konnectivity.commands import ReportHealth, ReportRedial
from umbilical.konnectivity.dial_failure import PROBE_ADDRESS
from umbilical.konnectivity.links import AgentLink, Tunnel, TunnelClient
from umbilical.konnectivity.metadata import AgentIdentifiers
from umbilical.tunnel import causes
from umbilical.tunnel import notices as agent_notices
from umbilical.tunnel.notices import REPEAT_SECONDS, DialNotices
from umbilical.tunnel.settings import TlsFiles

Meet = Callable[[Pair, Pair], Stage]


def warnings(caplog: Logged) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def wait_for(stage: Stage, caplog: Logged, code: str) -> str:
    """The first warning under this code."""
    stage.eventually(lambda: any(line.startswith(f"{code} ") for line in warnings(caplog)))
    return next(line for line in warnings(caplog) if line.startswith(f"{code} "))


@pytest.fixture
def odd(tmp_path: Path) -> OddPki:
    return OddPki(tmp_path)


@pytest.fixture
def meet(tunnel_pki: TunnelPki, odd: OddPki, tmp_path: Path) -> Iterator[Meet]:
    """Starts a server and an agent with these certificates."""
    with ExitStack() as stages:

        def start(server: Pair, agent: Pair) -> Stage:
            stage = Stage(odd.tunnel(tunnel_pki, server, agent), tmp_path)
            stages.callback(stage.stop)
            stage.start_agent(stage.start_server().agent_port)
            return stage

        yield start


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("TCP: dial 10.0.0.9:8091: Connection refused", "UMB311"),
        ("no answer within 20 s", "UMB312"),
        ("TCP: dial 10.0.0.9:8091: Connection timed out", "UMB312"),
        ("TCP: dial 10.0.0.9:8091: Network is unreachable", "UMB313"),
        ("TCP: dial 10.0.0.9:8091: No route to host", "UMB313"),
        ("TCP: lookup nowhere: Name or service not known", "UMB314"),
        ("TCP: HTTPS_PROXY 10.0.0.1:3128: dial 10.0.0.1:3128: Connection refused", "UMB315"),
        ("certificate verification failed: certificate has expired", "UMB321"),
        ("certificate verification failed: certificate is not yet valid", "UMB322"),
        ("certificate verification failed: IP address mismatch, certificate is not valid for '10.0.0.9'.", "UMB323"),
        ("certificate verification failed: Hostname mismatch, certificate is not valid for 'a'.", "UMB323"),
        ("certificate verification failed: unable to get local issuer certificate", "UMB324"),
        ("certificate verification failed: self-signed certificate in certificate chain", "UMB324"),
        ("TLS: wrong version number", "UMB325"),
        ("connection closed during the TLS handshake", "UMB325"),
        ("the server does not speak HTTP/2 here (ALPN None): is this the agent port?", "UMB325"),
        ("TLS: sslv3 alert certificate expired", "UMB331"),
        ("TLS: sslv3 alert bad certificate", "UMB332"),
        ("TLS: tlsv1 alert unknown ca", "UMB332"),
        ("TLS: ssl/tls alert bad certificate", "UMB332"),
        ("TLS: tlsv13 alert certificate required", "UMB333"),
        ("server ended the stream: Unknown: Failed to validate authentication token", "UMB334"),
        ("service account token /t: No such file or directory", "UMB335"),
        ("stream reset by the server (HTTP/2 error 2)", "UMB319"),
    ],
)
def test_a_failed_connect_is_recognised_by_its_reason(reason: str, code: str) -> None:
    cause = causes.of_failed_connect(reason)
    assert (cause.code, cause.text) == (code, reason)
    assert cause.fields["fields"] == {"code": code, "next": cause.next}


@pytest.mark.parametrize(
    ("reason", "at_server", "at_agent"),
    [
        ("keepalive: no answer to a PING within 20 s", "UMB309", "UMB342"),
        ("Connection timed out", "UMB309", "UMB342"),
        ("TLS: connection ended without close_notify", "UMB302", "UMB341"),
        ("Connection reset by peer", "UMB302", "UMB341"),
        ("connection closed by the peer", "UMB302", "UMB341"),
    ],
)
def test_a_lost_connection_is_distinguished_from_a_silent_one(reason: str, at_server: str, at_agent: str) -> None:
    assert causes.of_gone_agent(reason).code == at_server
    assert causes.of_lost_server(reason).code == at_agent


def test_an_end_that_was_announced_is_not_an_error() -> None:
    assert causes.is_orderly("agent ended its stream")
    assert causes.is_orderly("the server is leaving, and the last tunnel has ended")
    assert not causes.is_orderly("connection closed by the peer")


def test_every_next_step_fits_on_the_line() -> None:
    assert all(0 < len(step) < 130 and "\n" not in step for step in causes.NEXT.values())


def test_a_port_that_refuses_is_named(stage: Stage, caplog: Logged) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    stage.start_agent(port)
    line = wait_for(stage, caplog, "UMB311")
    assert line == f"UMB311 cannot connect to server=127.0.0.1:{port}: TCP: dial 127.0.0.1:{port}: Connection refused"


def test_an_expired_server_certificate_is_reported_with_its_date(meet: Meet, odd: OddPki, caplog: Logged) -> None:
    stage = meet(odd.server(starts=-DAY, life=timedelta(hours=1)), odd.agent())
    until = f"{odd.now - DAY + timedelta(hours=1):%Y-%m-%dT%H:%M:%S}Z"
    line = wait_for(stage, caplog, "UMB321")
    assert f"certificate has expired; it was valid until {until}; this machine's clock shows 20" in line


def test_a_server_certificate_not_yet_valid_is_reported_with_its_date(meet: Meet, odd: OddPki, caplog: Logged) -> None:
    line = wait_for(meet(odd.server(starts=DAY), odd.agent()), caplog, "UMB322")
    start = f"{odd.now + DAY - timedelta(hours=1):%Y-%m-%dT%H:%M:%S}Z"
    assert f"certificate is not yet valid; it is valid only from {start}; this machine's clock shows 20" in line
    assert line.endswith("Z: compare the clocks of both machines")


def test_a_server_certificate_for_another_address_is_reported_with_its_names(
    meet: Meet, odd: OddPki, caplog: Logged
) -> None:
    other = odd.server(hosts=("192.168.111.4", "elsewhere"))
    line = wait_for(meet(other, odd.agent()), caplog, "UMB323")
    assert "not valid for '127.0.0.1'" in line
    assert line.endswith("; the certificate is for elsewhere, 192.168.111.4")


def test_a_server_of_another_authority_is_reported(
    stage: Stage, tmp_path: Path, caplog: Logged, tunnel_pki: TunnelPki
) -> None:
    strange = FolderAuthority(tmp_path, "strange")
    tls = TlsFiles(tunnel_pki.agent.certificate, tunnel_pki.agent.key, strange.certificate_file)
    stage.start_agent(stage.start_server().agent_port, tls=tls)
    assert "certificate verification failed" in wait_for(stage, caplog, "UMB324")
    # The other side hears of it by an alert.
    assert "alert" in wait_for(stage, caplog, "UMB307")


def test_the_look_at_a_refused_certificate_happens_once_for_each_reason(
    meet: Meet, odd: OddPki, caplog: Logged, monkeypatch: Patch
) -> None:
    looks: list[str] = []

    async def explain(settings: object, server: object, address: object, code: str) -> str:
        looks.append(code)
        return ""

    monkeypatch.setattr("umbilical.tunnel.agent.explain", explain)
    stage = meet(odd.server(starts=DAY), odd.agent())
    stage.eventually(lambda: sum("UMB322" in line for line in warnings(caplog)) >= 3)
    assert looks == ["UMB322"]


@pytest.mark.parametrize(
    ("dates", "server_code", "agent_code", "server_words"),
    [
        ({"starts": -DAY, "life": timedelta(hours=1)}, "UMB303", "UMB331", "certificate has expired"),
        ({"starts": DAY}, "UMB304", "UMB332", "certificate is not yet valid"),
    ],
    ids=["expired", "not yet valid"],
)
def test_an_agent_out_of_date_is_refused_and_both_sides_log_the_reason(
    meet: Meet,
    odd: OddPki,
    caplog: Logged,
    dates: dict[str, timedelta],
    server_code: str,
    agent_code: str,
    server_words: str,
) -> None:
    stage = meet(odd.server(), odd.agent(**dates))
    assert server_words in wait_for(stage, caplog, server_code)
    line = wait_for(stage, caplog, agent_code)
    assert "; our certificate is valid from 20" in line
    assert "; this machine's clock shows 20" in line


def test_an_agent_of_another_authority_is_refused_and_both_sides_log_it(
    stage: Stage, tmp_path: Path, caplog: Logged, tunnel_pki: TunnelPki
) -> None:
    stranger = FolderAuthority(tmp_path, "strange").client("stranger")
    tls = TlsFiles(stranger.certificate, stranger.key, tunnel_pki.authority.certificate_file)
    stage.start_agent(stage.start_server().agent_port, tls=tls)
    wait_for(stage, caplog, "UMB305")
    wait_for(stage, caplog, "UMB332")


def test_an_agent_without_a_certificate_is_refused_and_both_sides_log_it(
    stage: Stage, caplog: Logged, tunnel_pki: TunnelPki
) -> None:
    tls = TlsFiles(authority=tunnel_pki.authority.certificate_file)
    stage.start_agent(stage.start_server().agent_port, tls=tls)
    wait_for(stage, caplog, "UMB306")
    wait_for(stage, caplog, "UMB333")


def test_repeated_failures_of_a_client_are_logged_rarely(stage: Stage, caplog: Logged) -> None:
    port = stage.start_server().agent_port
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as knock:
            knock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while knock.recv(4096):
                pass
    wait_for(stage, caplog, "UMB307")
    assert sum(line.startswith("UMB307") for line in warnings(caplog)) == 1


def test_an_agent_that_leaves_is_not_a_warning(stage: Stage, caplog: Logged) -> None:
    caplog.set_level("INFO", "umbilical")
    server, agent = stage.start_pair()
    stage.call(agent.agent.drain)
    stage.eventually(lambda: any(link.draining for link in server.server.core.links()))
    agent.stop()
    stage.eventually(lambda: "agent gone" in caplog.text)
    assert not [line for line in warnings(caplog) if "agent gone" in line]


def test_an_agent_that_finds_the_same_server_twice_is_not_a_warning(stage: Stage, caplog: Logged) -> None:
    """Behind one address with several servers, agents dial repeatedly and keep one connection to each."""
    caplog.set_level("INFO", "umbilical")
    server = stage.start_server()
    first, second = ScriptedAgent(server), ScriptedAgent(server)
    second.channel.socket.close()
    stage.eventually(lambda: "agent closed a second connection agent=scripted" in caplog.text)
    assert not warnings(caplog)
    first.channel.socket.close()
    wait_for(stage, caplog, "UMB302")


def test_a_server_that_dies_is_reported_with_a_code(stage: Stage, caplog: Logged) -> None:
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port)
    stream = server.accept()
    agent.wait_until_ready()
    stream.channel.socket.close()
    assert "connection lost server=scripted" in wait_for(stage, caplog, "UMB341")


def test_a_silent_agent_is_given_up_with_a_code(stage: Stage, caplog: Logged, monkeypatch: Patch) -> None:
    server = stage.start_server()
    ScriptedAgent(server)
    stage.skip(3_601, monkeypatch)
    stage.skip(3_700, monkeypatch)
    assert "keepalive" in wait_for(stage, caplog, "UMB309")


@pytest.fixture(autouse=True)
def everything(caplog: Logged) -> None:
    caplog.set_level(logging.DEBUG, agent_notices.__name__)


def agent(agent_id: str = "a1", key: int = 1) -> AgentLink:
    return AgentLink(key, agent_id, AgentIdentifiers())


def test_a_sick_agent_is_a_warning_with_a_code_and_its_recovery_is_not(caplog: Logged) -> None:
    link = agent()
    link.sick = True
    agent_notices.report_health(ReportHealth(link, "3 dials in a row got no answer"))
    link.sick = False
    agent_notices.report_health(ReportHealth(link, "it answers dials again"))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "UMB412 agent is last choice agent=a1 tunnels=0 dials=0: 3 dials in a row got no answer"),
        ("INFO", "agent is chosen again agent=a1: it answers dials again"),
    ]


def test_a_dial_that_moves_on_reports_from_where_to_where_and_why(caplog: Logged) -> None:
    tunnel = Tunnel(NO_CLIENT, 7, "web:443", 0.0)
    tunnel.link = agent("a2", 2)
    agent_notices.report_redial(ReportRedial(tunnel, agent(), "agent lost: reset"))
    (record,) = caplog.records
    assert record.levelname == "DEBUG"
    text = "dial goes to another agent dial=7 target=web:443 from=a1 to=a2: agent lost: reset"
    assert record.getMessage() == text


def test_text_that_is_not_a_network_is_quoted_within_bounds(caplog: Logged) -> None:
    agent_notices.report_networks(agent(), ["10/8", "x\n" * 1_000], "")
    message = caplog.messages[0]
    assert message.startswith("UMB413 agent=a1: cidr identifiers that are not networks: '10/8, x\\n")
    assert len(message) < 600
    assert "\n" not in message


def notices(caplog: Logged) -> list[str]:
    told = [record.getMessage() for record in caplog.records if record.name == agent_notices.__name__]
    return [text for text in told if " dial of " in text]


def test_a_storm_is_a_line_for_each_endpoint_and_a_count(caplog: Logged) -> None:
    told = DialNotices()
    for number in range(100):
        told.refused("UMB401", "10.0.0.5:443", "a1", "connection refused", 1000.0 + number / 100)
    told.refused("UMB401", "10.0.0.6:443", "a1", "connection refused", 1002.0)
    told.refused("UMB401", "10.0.0.5:443", "a1", "connection refused", 1002.0 + REPEAT_SECONDS)
    assert notices(caplog) == [
        "UMB401 dial of 10.0.0.5:443 failed agent=a1: connection refused",
        "UMB401 dial of 10.0.0.6:443 failed agent=a1: connection refused",
        "UMB401 dial of 10.0.0.5:443 failed agent=a1: connection refused (99 more since the last such line)",
    ]


def test_the_good_answer_to_a_probe_of_our_own_clients_is_not_a_warning(caplog: Logged) -> None:
    notices = DialNotices()
    notices.refused("UMB401", PROBE_ADDRESS, "a1", "connection refused", 0.0)
    assert caplog.text == ""
    notices.refused("UMB406", PROBE_ADDRESS, "a1", "no answer", 0.0)
    assert "UMB406" in caplog.text


def test_without_agents_a_storm_of_dials_anywhere_is_one_line(caplog: Logged) -> None:
    told = DialNotices()
    for number in range(100):
        told.refused("UMB301", f"10.0.0.{number}:443", "-", "No agent available", 1000.0)
    assert len(notices(caplog)) == 1


@pytest.mark.parametrize("mode", ["grpc", "http-connect"])
def test_a_dial_without_any_agent_is_reported(stage: Stage, mode: str, caplog: Logged) -> None:
    caplog.set_level("INFO", "umbilical.tunnels")
    server = stage.start_server(mode)
    with pytest.raises(DialRefused, match="No agent available"):
        server.frontend.open("10.0.0.5:443")
    assert notices(caplog) == ["UMB301 dial of 10.0.0.5:443 failed agent=-: No agent available"]
    assert 'code=UMB301 end="No agent available"' in caplog.text


def test_a_dial_that_no_agent_may_carry_is_distinguished(stage: Stage, caplog: Logged) -> None:
    server = stage.start_server(strategies=("destHost",))
    ScriptedAgent(server, identifiers="host=elsewhere")
    with pytest.raises(DialRefused, match="No agent available"):
        server.frontend.open("10.0.0.5:443")
    assert [line[:6] for line in notices(caplog)] == ["UMB405"]


def test_an_endpoint_that_refuses_is_reported_by_both_sides(stage: Stage, caplog: Logged) -> None:
    caplog.set_level("INFO", "umbilical.tunnels")
    server, _ = stage.start_pair()
    address = refused_address()
    with pytest.raises(DialRefused, match="connection refused"):
        server.frontend.open(address)
    text = f"dial tcp {address}: connect: connection refused"
    assert notices(caplog) == [f"UMB401 dial of {address} failed agent=agent-0: {text}"]
    assert caplog.text.count(f'code=UMB401 end="{text}"') == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("dial tcp 10.0.0.5:443: i/o timeout", "UMB402"),
        ("dial tcp: lookup web: no such host", "UMB404"),
        ("dial tcp 10.0.0.5:443: connect: no route to host", "UMB401"),
    ],
)
def test_an_agents_error_is_reported_under_its_own_code(stage: Stage, error: str, code: str, caplog: Logged) -> None:
    server, agent = scripted_pair(stage, "grpc")
    stream = open_proxy_stream(server)
    stream.send(packet_messages.dial_request("10.0.0.5:443", 7))
    dial_id = agent.next_dial().random
    agent.send(packet_messages.dial_response(dial_id, 0, error))
    assert expect(stream, PacketType.DIAL_RSP).dialResponse.error == error  # the wire knows no codes
    assert [line[:6] for line in notices(caplog)] == [code]


def test_an_agent_that_is_lost_during_a_dial_is_reported(stage: Stage, caplog: Logged) -> None:
    server, agent = scripted_pair(stage, "grpc")
    stream = open_proxy_stream(server)
    stream.send(packet_messages.dial_request("10.0.0.5:443", 7))
    agent.next_dial()
    agent.channel.close()
    expect(stream, PacketType.DIAL_RSP)
    assert [line[:6] for line in notices(caplog)] == ["UMB408"]


class CountingClient:
    """A client with a tunnel that has transferred some bytes."""

    def byte_counts(self) -> tuple[int, int]:
        return 5, 9

    def identity(self) -> str:
        return "CN=web"

    def waiting(self) -> tuple[int, bool]:
        return 0, False


def _tunnel(asked_at: float) -> Tunnel:
    return Tunnel(cast(TunnelClient, CountingClient()), 7, "web:443", asked_at)


def test_a_tunnel_is_reported_once(caplog: Logged) -> None:
    caplog.set_level(logging.INFO, "umbilical.tunnels")
    tunnel = _tunnel(10.0)
    tunnel.link = AgentLink(1, "a1", AgentIdentifiers())
    tunnel.connection_id = 3
    agent_notices.report_tunnel(tunnel, 12.5, "client closed")
    agent_notices.report_tunnel(tunnel, 13.0, "agent lost")
    (line,) = caplog.messages
    assert (
        line
        == 'tunnel dial=7 connection=3 client="CN=web" agent=a1 target=web:443 up=5 down=9 ms=2500 end="client closed"'
    )


def test_a_dial_without_an_agent_is_reported_without_one(caplog: Logged) -> None:
    caplog.set_level(logging.INFO, "umbilical.tunnels")
    agent_notices.report_tunnel(_tunnel(0.0), 0.0, "No agent available")
    assert "agent=- target=web:443" in caplog.messages[0]
