"""Revocation lists at both doors: in handshakes, and for peers that are connected when a list changes."""

import logging
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.grpc_channel import ChannelClosed
from tests.support.in_process import Stage, echo
from tests.support.live_certificates import der, replace
from tests.support.tunnel_client import DialRefused, Frontend, assert_echoes
from tests.support.tunnel_pki import FolderAuthority, Pair

from umbilical.fault import StartupError
from umbilical.tunnel import revocation
from umbilical.tunnel.settings import TlsFiles, TlsPolicy
from umbilical.tunnel.tls import listener_context

DAY = timedelta(days=1)
LOST = (OSError, AssertionError, ChannelClosed, DialRefused)


def write(path: Path, authority: FolderAuthority, pairs: Iterable[Pair] = (), age: timedelta = timedelta()) -> Path:
    """Replace the list; it was made so long ago, and holds for a day."""
    replace(path, authority.revocation_list(pairs, datetime.now(UTC) - age, DAY))
    return path


@pytest.mark.parametrize("mode", ["grpc", "http-connect"])
def test_a_client_whose_certificate_gets_revoked_loses_its_tunnels_and_gets_no_new_one(
    stage: Stage, tmp_path: Path, mode: str
) -> None:
    authority = stage.pki.authority
    path = write(tmp_path / "clients.crl", authority)
    server = stage.start_server(mode, tcp=True, client_lists=path)
    stage.start_agent(server.agent_port)
    server.wait_for_agents()
    other = authority.client("other")
    context = authority.client_context(other, ["h2" if mode == "grpc" else "http/1.1"])
    frontend = Frontend(mode, port=server.frontend.port, tls=context)
    address = stage.endpoint().serve(echo).address
    revoked, kept = server.frontend.open(address), frontend.open(address)
    assert_echoes(revoked)
    write(path, authority, [stage.pki.client])
    stage.call(server.server.reload)
    with pytest.raises(LOST):
        assert_echoes(revoked)
    with pytest.raises(LOST):
        server.frontend.open(address)
    assert_echoes(kept)


def test_an_agent_whose_certificate_gets_revoked_is_cut_and_does_not_come_back(
    stage: Stage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "umbilical")
    authority = stage.pki.authority
    path = write(tmp_path / "agents.crl", authority)
    server = stage.start_server("grpc", agent_lists=path)
    agent = stage.start_agent(server.agent_port)
    agent.wait_until_ready()
    write(path, authority, [stage.pki.agent])
    stage.call(server.server.reload)
    server.wait_for_agents(0)
    stage.eventually(lambda: not agent.agent.is_ready())
    stage.eventually(lambda: "certificate verification failed: certificate revoked" in caplog.text)
    assert "UMB310 agent gone" in caplog.text
    write(path, authority)
    stage.call(server.server.reload)
    agent.wait_until_ready()


def test_a_list_that_has_expired_lets_nobody_in_and_the_log_says_so(
    stage: Stage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "agents.crl", stage.pki.authority, age=2 * DAY)
    server = stage.start_server("grpc", agent_lists=path)
    stage.start_agent(server.agent_port)
    stage.eventually(lambda: "UMB316" in caplog.text)
    assert "certificate verification failed: CRL has expired" in caplog.text
    assert f"UMB345 the revocation list in use has expired role=agent-listener file={path}" in caplog.text


@pytest.fixture
def authority(tmp_path: Path) -> FolderAuthority:
    return FolderAuthority(tmp_path)


def read(path: Path, *authorities: FolderAuthority) -> revocation.Revoked:
    return revocation.read(path, [der(one.certificate_file) for one in authorities])


def test_lists_of_several_cas_are_read_from_one_file(authority: FolderAuthority, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    other = FolderAuthority(tmp_path / "new", "new-ca")
    bad, good = authority.client("bad"), other.client("good")
    now = datetime.now(UTC)
    path = tmp_path / "both.crl"
    later = other.revocation_list([], now, 2 * DAY)
    path.write_bytes(authority.revocation_list([bad], now, DAY) + b"# the new CA\n" + later)
    found = read(path, authority, other)
    assert found.covers(der(bad.certificate))
    assert not found.covers(der(good.certificate))
    assert found.validity.holds_at((now + DAY / 2).timestamp())
    assert not found.validity.holds_at((now + DAY * 1.5).timestamp())


def test_a_file_that_would_refuse_everybody_or_trust_somebody_is_refused(
    authority: FolderAuthority, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    other = FolderAuthority(tmp_path / "new", "new-ca")
    (tmp_path / "forged").mkdir()
    forged = FolderAuthority(tmp_path / "forged", "ca")
    now = datetime.now(UTC)
    own = authority.revocation_list([], now, DAY)
    path = tmp_path / "lists.crl"
    for content, why in (
        (b"", "the file contains no list in PEM"),
        (own + authority.certificate_file.read_bytes(), "the file contains a certificate"),
        (own.replace(b"\nM", b"\nA", 1), "not a certificate revocation list"),
        (own, "it has no list of the CA CN=new-ca, whose peers would be refused"),
        (own + forged.revocation_list([], now, DAY), "no CA of the peers has signed the list of CN=ca"),
    ):
        path.write_bytes(content)
        with pytest.raises(StartupError) as caught:
            read(path, authority, other)
        assert caught.value.code == "UMB026"
        assert why in caught.value.why, content


def test_openssl_checks_the_same_file(authority: FolderAuthority, tmp_path: Path) -> None:
    server = authority.serving("server")
    path = write(tmp_path / "lists.crl", authority)
    files = TlsFiles(server.certificate, server.key, authority.certificate_file, path)
    context = listener_context(files, TlsPolicy(), "h2", "agent")
    assert context.cert_store_stats() == {"x509": 1, "crl": 1, "x509_ca": 1}
    assert context.verify_flags & ssl.VERIFY_CRL_CHECK_LEAF
