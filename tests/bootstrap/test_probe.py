"""Looks at real listeners: TLS of each version, with and without a demand for certificates, and no TLS at all."""

import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support import tls_listener
from tests.support.tls_contexts import VERSIONS, server_context
from tests.support.tls_listener import listener
from tests.support.tunnel_pair import Shape, TunnelPair
from tests.support.tunnel_pki import FolderAuthority, TunnelPki, make_tunnel_pki

from umbilical.bootstrap.errors import BootstrapError
from umbilical.bootstrap.probe import Answer, Sight, TcpState, TlsFiles, asks_for_certificate, probe, try_tcp

NOW = datetime.now(UTC)
HOST = "127.0.0.1"
NO_FILES = TlsFiles()
Manner = Callable[[ssl.SSLContext], tls_listener.Deed]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> TunnelPki:
    return make_tunnel_pki(tmp_path_factory.mktemp("pki"), ("127.0.0.1", "::1", "localhost"))


def _files(pki: TunnelPki) -> TlsFiles:
    return TlsFiles(pki.authority.certificate_file, pki.agent.certificate, pki.agent.key)


def _look(port: int, files: TlsFiles = NO_FILES, host: str = HOST, timeout: float = 10.0) -> Sight:
    return probe(host, port, files, timeout, NOW)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manner", [tls_listener.speaks_first, tls_listener.answers])
def test_a_server_that_wants_certificates_turns_strangers_away_and_takes_agents(
    pki: TunnelPki, version: ssl.TLSVersion, manner: Manner
) -> None:
    context = server_context(pki)
    context.minimum_version = context.maximum_version = version
    with listener(manner(context)) as port:
        sight = _look(port, _files(pki))
    assert sight.tcp.state is TcpState.OPEN
    assert sight.stranger is not None
    assert asks_for_certificate(sight.stranger), sight.stranger
    assert sight.agent is not None
    assert sight.agent.answer is Answer.ACCEPTED


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manner", [tls_listener.speaks_first, tls_listener.answers])
def test_a_server_that_lets_strangers_in_is_seen_through(
    pki: TunnelPki, version: ssl.TLSVersion, manner: Manner
) -> None:
    context = server_context(pki, asks_certificate=False)
    context.minimum_version = context.maximum_version = version
    with listener(manner(context)) as port:
        sight = _look(port)
    assert sight.stranger is not None
    assert sight.stranger.answer is Answer.ACCEPTED
    assert sight.stranger.certificate is not None
    assert sight.agent is None


def test_our_own_server_demands_certificates_and_takes_an_agents(pki: TunnelPki, tmp_path: Path) -> None:
    pair = TunnelPair(Shape(), pki, tmp_path)
    try:
        pair.start_server()
        sight = _look(pair.ports.agent, _files(pki))
    finally:
        pair.stop()
    assert sight.stranger is not None
    assert asks_for_certificate(sight.stranger), sight.stranger
    assert sight.agent is not None
    assert sight.agent.answer is Answer.ACCEPTED, sight.agent


def test_a_server_of_another_authority_is_not_vouched_for(pki: TunnelPki, tmp_path: Path) -> None:
    other = FolderAuthority(tmp_path, "other")
    with listener(tls_listener.speaks_first(server_context(pki, asks_certificate=False))) as port:
        sight = _look(port, TlsFiles(other.certificate_file))
    assert sight.agent is not None
    assert sight.agent.answer is Answer.REFUSED
    assert sight.agent.certificate is None
    assert "certificate" in sight.agent.detail


def test_a_certificate_of_another_authority_is_turned_away(pki: TunnelPki, tmp_path: Path) -> None:
    stranger = FolderAuthority(tmp_path, "other").client("intruder")
    files = TlsFiles(pki.authority.certificate_file, stranger.certificate, stranger.key)
    with listener(tls_listener.speaks_first(server_context(pki))) as port:
        sight = _look(port, files)
    assert sight.agent is not None
    assert sight.agent.answer is Answer.REFUSED


def test_something_that_is_no_tls_is_told_as_such() -> None:
    with listener(tls_listener.plain_text) as port:
        sight = _look(port)
    assert sight.stranger is not None
    assert (sight.stranger.answer, sight.stranger.certificate) == (Answer.REFUSED, None)
    assert not asks_for_certificate(sight.stranger)


def test_silence_ends_at_the_timeout(pki: TunnelPki) -> None:
    with listener(tls_listener.swallows) as port:
        before_handshake = _look(port, timeout=0.3).stranger
    with listener(tls_listener.says_nothing(server_context(pki, asks_certificate=False))) as port:
        after_handshake = _look(port, timeout=0.3).stranger
    assert before_handshake is not None
    assert after_handshake is not None
    assert before_handshake.answer is after_handshake.answer is Answer.SILENT
    assert after_handshake.certificate is not None


def test_a_server_that_hangs_up_is_told_as_such(pki: TunnelPki) -> None:
    with listener(tls_listener.hangs_up(server_context(pki, asks_certificate=False))) as port:
        sight = _look(port)
    assert sight.stranger is not None
    assert sight.stranger.answer is Answer.REFUSED


def test_ipv6_is_dialled_by_its_plain_address(pki: TunnelPki) -> None:
    with listener(tls_listener.speaks_first(server_context(pki)), "::1") as port:
        sight = _look(port, _files(pki), host="::1")
    assert sight.agent is not None
    assert sight.agent.answer is Answer.ACCEPTED


def test_a_name_is_followed_to_the_address_that_answers(pki: TunnelPki) -> None:
    """localhost is both ::1 and 127.0.0.1 on many machines, and only one of them listens here."""
    with listener(tls_listener.speaks_first(server_context(pki))) as port:
        sight = _look(port, _files(pki), host="localhost")
    assert (sight.tcp.state, sight.tcp.address) == (TcpState.OPEN, "127.0.0.1")
    assert sight.agent is not None
    assert sight.agent.answer is Answer.ACCEPTED


def test_nothing_that_listens_is_a_refusal() -> None:
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        assert try_tcp(HOST, unused.getsockname()[1], 5).state is TcpState.REFUSED


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_a_name_that_cannot_exist_is_not_found(host: str) -> None:
    assert try_tcp(host, 8091, 5).state is TcpState.NAME_NOT_FOUND


def test_files_that_cannot_be_used_are_a_fault_before_anything_is_dialled(pki: TunnelPki, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    wrong = (
        TlsFiles(garbage),
        TlsFiles(certificate=pki.agent.certificate, key=pki.server.key),
        TlsFiles(certificate=garbage, key=pki.agent.key),
    )
    for files in wrong:
        with pytest.raises(BootstrapError, match="UMB166"):
            probe(HOST, 1, files, 1, NOW)
