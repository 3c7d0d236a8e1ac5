"""What is judged of a look at the port."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from umbilical.bootstrap.probe import Answer, Handshake, Sight, Tcp, TcpState, TlsFiles
from umbilical.bootstrap.probe_checks import CHECKS, names_of
from umbilical.checks.check import Finding, Outcome, judge
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, server_profile

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
DAY = timedelta(days=1)
OPEN = Tcp(TcpState.OPEN, "10.0.0.9")
DEMANDED = "TLSV13_ALERT_CERTIFICATE_REQUIRED"


def _certificate(*hosts: str, now: datetime = NOW, lifetime: timedelta = DAY) -> x509.Certificate:
    authority = Authority.create("ca", now, lifetime, KeyType.ECDSA_P256)
    issued = authority.issue(server_profile("server", hosts, KeyType.ECDSA_P256), now, lifetime)
    return x509.load_pem_x509_certificate(issued.certificate)


def _turned_away(certificate: x509.Certificate | None) -> Handshake:
    return Handshake(Answer.REFUSED, DEMANDED, "TLSv1.3", certificate)


def _findings(sight: Sight) -> dict[str, Finding]:
    return {finding.id: finding for finding in judge(CHECKS, sight)}


def _outcomes(sight: Sight) -> dict[str, Outcome]:
    return {name: finding.outcome for name, finding in _findings(sight).items()}


def test_a_server_as_it_should_be_passes_all() -> None:
    certificate = _certificate("10.0.0.9")
    agent = Handshake(Answer.ACCEPTED, "", "TLSv1.3", certificate)
    files = TlsFiles(Path("ca.crt"), Path("tls.crt"), Path("tls.key"))
    sight = Sight("10.0.0.9", 8091, NOW, OPEN, _turned_away(certificate), agent, files)
    assert set(_outcomes(sight).values()) == {Outcome.PASSED}


@pytest.mark.parametrize("state", [state for state in TcpState if state is not TcpState.OPEN])
def test_a_port_that_is_not_open_fails_once_and_leaves_the_rest_unasked(state: TcpState) -> None:
    findings = _findings(Sight("10.0.0.9", 8091, NOW, Tcp(state, "10.0.0.9", "why")))
    assert findings.pop("FW1").outcome is Outcome.FAILED
    assert {finding.outcome for finding in findings.values()} == {Outcome.SKIPPED}


@pytest.mark.parametrize(
    ("host", "names", "outcome"),
    [
        ("10.0.0.9", ("10.0.0.9",), Outcome.PASSED),
        ("10.0.0.9", ("10.0.0.8",), Outcome.FAILED),
        ("fd00:0::9", ("fd00::9",), Outcome.PASSED),
        ("10.0.0.9", ("api.example",), Outcome.FAILED),
        ("API-int.example.", ("api-int.example",), Outcome.PASSED),
        ("a.example", ("*.example",), Outcome.PASSED),
        ("a.b.example", ("*.example",), Outcome.FAILED),
        ("example", ("10.0.0.9",), Outcome.FAILED),
    ],
)
def test_the_certificate_must_be_for_what_agents_dial(host: str, names: tuple[str, ...], outcome: Outcome) -> None:
    sight = Sight(host, 8091, NOW, OPEN, _turned_away(_certificate(*names)))
    assert _outcomes(sight)["FW3"] is outcome


@pytest.mark.parametrize(
    ("moment", "outcome"),
    [
        (NOW, Outcome.PASSED),
        (NOW + DAY - timedelta(minutes=30), Outcome.WARNED),
        (NOW + DAY + timedelta(seconds=1), Outcome.FAILED),
        (NOW - timedelta(hours=2), Outcome.FAILED),
    ],
)
def test_time_left_is_judged_by_the_clock_of_the_probe(moment: datetime, outcome: Outcome) -> None:
    sight = Sight("10.0.0.9", 8091, moment, OPEN, _turned_away(_certificate("10.0.0.9")))
    assert _outcomes(sight)["FW4"] is outcome


def test_a_stranger_who_is_let_in_is_the_known_hole() -> None:
    stranger = Handshake(Answer.ACCEPTED, "", "TLSv1.3", _certificate("10.0.0.9"))
    finding = _findings(Sight("10.0.0.9", 8091, NOW, OPEN, stranger))["FW5"]
    assert finding.outcome is Outcome.FAILED
    assert "CVE-2026-16242" in finding.why


def test_silence_after_the_handshake_is_not_taken_for_safety() -> None:
    stranger = Handshake(Answer.SILENT, "it says nothing", "TLSv1.3", _certificate("10.0.0.9"))
    assert _outcomes(Sight("10.0.0.9", 8091, NOW, OPEN, stranger))["FW5"] is Outcome.WARNED


def test_where_no_tls_is_spoken_nothing_is_said_about_certificates() -> None:
    outcomes = _outcomes(Sight("10.0.0.9", 8091, NOW, OPEN, Handshake(Answer.REFUSED, "WRONG_VERSION_NUMBER")))
    assert outcomes["FW2"] is Outcome.FAILED
    assert {outcomes[name] for name in ("FW3", "FW4", "FW5")} == {Outcome.SKIPPED}


def test_a_handshake_refused_for_want_of_a_certificate_is_tls_all_the_same() -> None:
    """TLS 1.2 servers do so: then the certificate is seen by the agent's handshake alone."""
    agent = Handshake(Answer.ACCEPTED, "", "TLSv1.2", _certificate("10.0.0.9"))
    stranger = Handshake(Answer.REFUSED, "SSLV3_ALERT_HANDSHAKE_FAILURE")
    outcomes = _outcomes(Sight("10.0.0.9", 8091, NOW, OPEN, stranger, agent, TlsFiles(Path("ca"))))
    assert [outcomes[name] for name in ("FW2", "FW3", "FW5", "FW6")] == [Outcome.PASSED] * 4


@pytest.mark.parametrize(
    ("agent", "outcome"),
    [
        (Handshake(Answer.REFUSED, "UNKNOWN_CA"), Outcome.FAILED),
        (Handshake(Answer.SILENT, "it says nothing"), Outcome.WARNED),
    ],
)
def test_our_own_certificate_must_be_taken(agent: Handshake, outcome: Outcome) -> None:
    files = TlsFiles(Path("ca.crt"), Path("tls.crt"), Path("tls.key"))
    sight = Sight("10.0.0.9", 8091, NOW, OPEN, _turned_away(_certificate("10.0.0.9")), agent, files)
    outcomes = _outcomes(sight)
    assert outcomes["FW7"] is outcome
    assert outcomes["FW6"] is Outcome.FAILED


def test_a_certificate_without_alternative_names_has_none() -> None:
    assert names_of(_certificate()) == []
    assert names_of(_certificate("b.example", "::1")) == ["b.example", "::1"]
