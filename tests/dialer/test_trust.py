"""The dialer's certificates: parsed at the start, followed while it runs."""

import asyncio
import ssl
from pathlib import Path

import pytest
from tests.support.data_plane import Diary
from tests.support.dialer_scene import client_files, play
from tests.support.live_certificates import LiveFiles
from tests.support.tunnel_pki import FolderAuthority, TunnelPki

from umbilical.dialer import trust
from umbilical.dialer.settings import DialerSettings, Protocol, TcpServer, UnixServer
from umbilical.tunnel.errors import StartupError
from umbilical.tunnel.exposition import Exposition
from umbilical.tunnel.metrics import CertificateMetrics
from umbilical.tunnel.settings import TlsFiles

SERVERS = (TcpServer("127.0.0.1", 1),)


def test_unix_sockets_need_no_files() -> None:
    settings = DialerSettings((UnixServer(Path("/s")),), TlsFiles(authority=Path("/none")))
    assert trust.watched_context(settings, CertificateMetrics()) is None


def test_the_context_verifies_and_is_no_older_than_tls_1_2(tunnel_pki: TunnelPki) -> None:
    watched = trust.watched_context(DialerSettings(SERVERS, client_files(tunnel_pki)), CertificateMetrics())
    assert watched is not None
    context = watched.context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize("protocol", Protocol)
def test_files_that_cannot_be_used_are_told_at_the_start(
    tunnel_pki: TunnelPki, tmp_path: Path, protocol: Protocol
) -> None:
    good = client_files(tunnel_pki)
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing of use")
    for files, code in (
        (TlsFiles(good.certificate, tunnel_pki.agent.key, good.authority), "UMB020"),
        (TlsFiles(good.certificate, good.key, bad), "UMB021"),
        (TlsFiles(good.certificate, tmp_path / "none", good.authority), "UMB022"),
        (TlsFiles(good.certificate, good.key, None), "UMB022"),
    ):
        with pytest.raises(StartupError) as caught:
            trust.watched_context(DialerSettings(SERVERS, files, protocol), CertificateMetrics())
        assert caught.value.code == code


def test_changed_files_are_used_and_bad_ones_are_not(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    live = LiveFiles(tmp_path / "live")
    live.install(tunnel_pki.client, tunnel_pki.authority)
    metrics = CertificateMetrics()
    watched = trust.watched_context(DialerSettings(SERVERS, live.files), metrics)
    assert watched is not None
    before = watched.context()
    assert set(metrics.expiry) == {("client", "certificate"), ("client", "ca")}

    live.key.write_text("half written")
    watched.look()
    assert watched.context() is before

    (tmp_path / "other").mkdir()
    other = FolderAuthority(tmp_path / "other")
    live.install(other.client("fresh"), other)
    watched.look()
    assert watched.context() is not before
    out = Exposition()
    metrics.render(out)
    assert b'umbilical_certificate_reloads_total{role="client",result="success"} 1' in out.render()


async def _timers() -> None:
    clock, wanted, unwanted = trust.AsyncioClock(), Diary(), Diary()
    before = clock.now
    cancelled = clock.after(0.0, unwanted)
    clock.cancel(cancelled)
    clock.cancel(cancelled)
    fired = clock.after(0.0, wanted)
    while not wanted.lines:
        await asyncio.sleep(0.001)
    clock.cancel(fired)
    assert (len(wanted.lines), unwanted.lines) == (1, [])
    assert clock.now >= before


def test_timers_fire_once_unless_cancelled() -> None:
    play(_timers())
