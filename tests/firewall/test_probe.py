"""Probing the port for agents: how it answers, and what is made of it."""

import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from tests.support import tls_listener
from tests.support.tls_contexts import VERSIONS, server_context
from tests.support.tls_listener import listener
from tests.support.tunnel_pair import Shape, TunnelPair
from tests.support.tunnel_pki import FolderAuthority, TunnelPki, make_tunnel_pki

from umbilical.checks.check import Finding, Outcome, run_checks
from umbilical.fault import BootstrapError
from umbilical.firewall.probe import (
    HandshakeResult,
    ProbeResult,
    ProbeTlsFiles,
    ServerAnswer,
    TcpResult,
    TcpState,
    asks_for_certificate,
    probe,
    try_tcp,
)
from umbilical.firewall.probe_checks import CHECKS, names_of
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, server_profile

NOW = datetime.now(UTC)
HOST = "127.0.0.1"
NO_FILES = ProbeTlsFiles()
Manner = Callable[[ssl.SSLContext], tls_listener.Deed]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> TunnelPki:
    return make_tunnel_pki(tmp_path_factory.mktemp("pki"), ("127.0.0.1", "::1", "localhost"))


def _files(pki: TunnelPki) -> ProbeTlsFiles:
    return ProbeTlsFiles(pki.authority.certificate_file, pki.agent.certificate, pki.agent.key)


def _answer(handshake: HandshakeResult | None) -> ServerAnswer | None:
    return None if handshake is None else handshake.answer


def _look(port: int, files: ProbeTlsFiles = NO_FILES, host: str = HOST, timeout: float = 10.0) -> ProbeResult:
    return probe(host, port, files, timeout, NOW)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manner", [tls_listener.speaks_first, tls_listener.answers])
def test_a_server_that_wants_certificates_takes_agents_alone(
    pki: TunnelPki, version: ssl.TLSVersion, manner: Manner
) -> None:
    context = server_context(pki)
    context.minimum_version = context.maximum_version = version
    with listener(manner(context)) as port:
        result = _look(port, _files(pki))
    assert result.tcp.state is TcpState.OPEN
    assert result.anonymous is not None
    assert asks_for_certificate(result.anonymous), result.anonymous
    assert _answer(result.agent) is ServerAnswer.ACCEPTED


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manner", [tls_listener.speaks_first, tls_listener.answers])
def test_a_server_that_lets_anonymous_clients_in(pki: TunnelPki, version: ssl.TLSVersion, manner: Manner) -> None:
    context = server_context(pki, asks_certificate=False)
    context.minimum_version = context.maximum_version = version
    with listener(manner(context)) as port:
        result = _look(port)
    assert result.anonymous is not None
    assert result.anonymous.answer is ServerAnswer.ACCEPTED
    assert result.anonymous.certificate is not None
    assert result.agent is None


def test_our_own_server_demands_certificates_and_takes_an_agents(pki: TunnelPki, tmp_path: Path) -> None:
    pair = TunnelPair(Shape(), pki, tmp_path)
    try:
        pair.start_server()
        result = _look(pair.ports.agent, _files(pki))
    finally:
        pair.stop()
    assert result.anonymous is not None
    assert asks_for_certificate(result.anonymous), result.anonymous
    assert _answer(result.agent) is ServerAnswer.ACCEPTED, result.agent


def test_a_server_of_another_authority_is_not_vouched_for(pki: TunnelPki, tmp_path: Path) -> None:
    other = FolderAuthority(tmp_path, "other")
    with listener(tls_listener.speaks_first(server_context(pki, asks_certificate=False))) as port:
        result = _look(port, ProbeTlsFiles(other.certificate_file))
    assert result.agent is not None
    assert (result.agent.answer, result.agent.certificate) == (ServerAnswer.REFUSED, None)
    assert "certificate" in result.agent.detail


def test_a_certificate_of_another_authority_is_turned_away(pki: TunnelPki, tmp_path: Path) -> None:
    anonymous = FolderAuthority(tmp_path, "other").client("intruder")
    files = ProbeTlsFiles(pki.authority.certificate_file, anonymous.certificate, anonymous.key)
    with listener(tls_listener.speaks_first(server_context(pki))) as port:
        result = _look(port, files)
    assert _answer(result.agent) is ServerAnswer.REFUSED


def test_something_that_is_no_tls_is_told_as_such() -> None:
    with listener(tls_listener.plain_text) as port:
        result = _look(port)
    assert result.anonymous is not None
    assert (result.anonymous.answer, result.anonymous.certificate) == (ServerAnswer.REFUSED, None)
    assert not asks_for_certificate(result.anonymous)


def test_silence_ends_at_the_timeout(pki: TunnelPki) -> None:
    with listener(tls_listener.swallows) as port:
        before_handshake = _look(port, timeout=0.3).anonymous
    with listener(tls_listener.says_nothing(server_context(pki, asks_certificate=False))) as port:
        after_handshake = _look(port, timeout=0.3).anonymous
    assert before_handshake is not None
    assert after_handshake is not None
    assert before_handshake.answer is after_handshake.answer is ServerAnswer.SILENT
    assert after_handshake.certificate is not None


def test_a_server_that_hangs_up_is_told_as_such(pki: TunnelPki) -> None:
    with listener(tls_listener.hangs_up(server_context(pki, asks_certificate=False))) as port:
        result = _look(port)
    assert _answer(result.anonymous) is ServerAnswer.REFUSED


def test_an_address_is_dialled_as_it_is_and_a_name_is_followed_to_the_one_that_answers(pki: TunnelPki) -> None:
    """localhost is both ::1 and 127.0.0.1 on many machines, and only one of them listens here."""
    for host, address in (("::1", "::1"), ("localhost", "127.0.0.1")):
        with listener(tls_listener.speaks_first(server_context(pki)), address) as port:
            result = _look(port, _files(pki), host)
        assert (result.tcp.state, result.tcp.address) == (TcpState.OPEN, address)
        assert _answer(result.agent) is ServerAnswer.ACCEPTED


def test_nothing_that_listens_is_a_refusal_and_a_name_that_cannot_exist_not_found() -> None:
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        assert try_tcp(HOST, unused.getsockname()[1], 5).state is TcpState.REFUSED
    for host in ("a..b", "x" * 64):
        assert try_tcp(host, 8091, 5).state is TcpState.NAME_NOT_FOUND


def test_files_that_cannot_be_used_are_a_fault_before_anything_is_dialled(pki: TunnelPki, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    wrong = (
        ProbeTlsFiles(garbage),
        ProbeTlsFiles(certificate=pki.agent.certificate, key=pki.server.key),
        ProbeTlsFiles(certificate=garbage, key=pki.agent.key),
    )
    for files in wrong:
        with pytest.raises(BootstrapError, match="UMB166"):
            probe(HOST, 1, files, 1, NOW)


THEN = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
DAY = timedelta(days=1)
OPEN = TcpResult(TcpState.OPEN, "10.0.0.9")
DEMANDED = "TLSV13_ALERT_CERTIFICATE_REQUIRED"


def _certificate(*hosts: str, now: datetime = THEN, lifetime: timedelta = DAY) -> x509.Certificate:
    authority = Authority.create("ca", now, lifetime, KeyType.ECDSA_P256)
    issued = authority.issue(server_profile("server", hosts, KeyType.ECDSA_P256), now, lifetime)
    return x509.load_pem_x509_certificate(issued.certificate)


def _turned_away(certificate: x509.Certificate | None) -> HandshakeResult:
    return HandshakeResult(ServerAnswer.REFUSED, DEMANDED, "TLSv1.3", certificate)


def _findings(result: ProbeResult) -> dict[str, Finding]:
    return {finding.id: finding for finding in run_checks(CHECKS, result)}


def _outcomes(result: ProbeResult) -> dict[str, Outcome]:
    return {name: finding.outcome for name, finding in _findings(result).items()}


def test_a_server_as_it_should_be_passes_all() -> None:
    certificate = _certificate("10.0.0.9")
    agent = HandshakeResult(ServerAnswer.ACCEPTED, "", "TLSv1.3", certificate)
    files = ProbeTlsFiles(Path("ca.crt"), Path("tls.crt"), Path("tls.key"))
    result = ProbeResult("10.0.0.9", 8091, THEN, OPEN, _turned_away(certificate), agent, files)
    assert set(_outcomes(result).values()) == {Outcome.PASSED}


@pytest.mark.parametrize("state", [state for state in TcpState if state is not TcpState.OPEN])
def test_a_port_that_is_not_open_fails_once_and_leaves_the_rest_unasked(state: TcpState) -> None:
    findings = _findings(ProbeResult("10.0.0.9", 8091, THEN, TcpResult(state, "10.0.0.9", "why")))
    assert findings.pop("FW1").outcome is Outcome.FAILED
    assert {finding.outcome for finding in findings.values()} == {Outcome.SKIPPED}


def test_the_certificate_must_be_for_what_agents_dial() -> None:
    for host, names, outcome in (
        ("10.0.0.9", ("10.0.0.9",), Outcome.PASSED),
        ("10.0.0.9", ("10.0.0.8",), Outcome.FAILED),
        ("fd00:0::9", ("fd00::9",), Outcome.PASSED),
        ("10.0.0.9", ("api.example",), Outcome.FAILED),
        ("API-int.example.", ("api-int.example",), Outcome.PASSED),
        ("a.example", ("*.example",), Outcome.PASSED),
        ("a.b.example", ("*.example",), Outcome.FAILED),
        ("example", ("10.0.0.9",), Outcome.FAILED),
    ):
        result = ProbeResult(host, 8091, THEN, OPEN, _turned_away(_certificate(*names)))
        assert _outcomes(result)["FW3"] is outcome, (host, names)


def test_time_left_is_judged_by_the_clock_of_the_probe() -> None:
    for moment, outcome in (
        (THEN, Outcome.PASSED),
        (THEN + DAY - timedelta(minutes=30), Outcome.WARNED),
        (THEN + DAY + timedelta(seconds=1), Outcome.FAILED),
        (THEN - timedelta(hours=2), Outcome.FAILED),
    ):
        result = ProbeResult("10.0.0.9", 8091, moment, OPEN, _turned_away(_certificate("10.0.0.9")))
        assert _outcomes(result)["FW4"] is outcome, moment


def test_an_anonymous_client_that_is_let_in_fails_and_silence_is_not_taken_for_safety() -> None:
    anonymous = HandshakeResult(ServerAnswer.ACCEPTED, "", "TLSv1.3", _certificate("10.0.0.9"))
    finding = _findings(ProbeResult("10.0.0.9", 8091, THEN, OPEN, anonymous))["FW5"]
    assert finding.outcome is Outcome.FAILED
    assert "CVE-2026-16242" in finding.why
    silent = replace(anonymous, answer=ServerAnswer.SILENT, detail="it says nothing")
    assert _outcomes(ProbeResult("10.0.0.9", 8091, THEN, OPEN, silent))["FW5"] is Outcome.WARNED


def test_where_no_tls_is_spoken_nothing_is_said_about_certificates() -> None:
    refused = HandshakeResult(ServerAnswer.REFUSED, "WRONG_VERSION_NUMBER")
    outcomes = _outcomes(ProbeResult("10.0.0.9", 8091, THEN, OPEN, refused))
    assert outcomes["FW2"] is Outcome.FAILED
    assert {outcomes[name] for name in ("FW3", "FW4", "FW5")} == {Outcome.SKIPPED}


def test_a_handshake_refused_for_want_of_a_certificate_is_tls_all_the_same() -> None:
    """TLS 1.2 servers do so: then the certificate is seen by the agent's handshake alone."""
    agent = HandshakeResult(ServerAnswer.ACCEPTED, "", "TLSv1.2", _certificate("10.0.0.9"))
    anonymous = HandshakeResult(ServerAnswer.REFUSED, "SSLV3_ALERT_HANDSHAKE_FAILURE")
    outcomes = _outcomes(ProbeResult("10.0.0.9", 8091, THEN, OPEN, anonymous, agent, ProbeTlsFiles(Path("ca"))))
    assert [outcomes[name] for name in ("FW2", "FW3", "FW5", "FW6")] == [Outcome.PASSED] * 4


@pytest.mark.parametrize(
    ("agent", "outcome"),
    [
        (HandshakeResult(ServerAnswer.REFUSED, "UNKNOWN_CA"), Outcome.FAILED),
        (HandshakeResult(ServerAnswer.SILENT, "it says nothing"), Outcome.WARNED),
    ],
)
def test_our_own_certificate_must_be_taken(agent: HandshakeResult, outcome: Outcome) -> None:
    files = ProbeTlsFiles(Path("ca.crt"), Path("tls.crt"), Path("tls.key"))
    result = ProbeResult("10.0.0.9", 8091, THEN, OPEN, _turned_away(_certificate("10.0.0.9")), agent, files)
    outcomes = _outcomes(result)
    assert outcomes["FW7"] is outcome
    assert outcomes["FW6"] is Outcome.FAILED


def test_a_certificate_without_alternative_names_has_none() -> None:
    assert names_of(_certificate()) == []
    assert names_of(_certificate("b.example", "::1")) == ["b.example", "::1"]
