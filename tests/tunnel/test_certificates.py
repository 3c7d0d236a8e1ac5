"""Certificates that change under a listener and an agent: new handshakes, log and metrics."""

import hashlib
import logging
import os
import ssl
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.support.live_certificates import Ends, LiveFiles, MountedSecret, der, replace
from tests.support.odd_certificates import OddPki
from tests.support.tunnel_pki import FolderAuthority, Pair

from umbilical.fault import StartupError
from umbilical.tunnel import certificate_dates, certificates, tls
from umbilical.tunnel.certificates import LOOK_SECONDS, RETRY_SECONDS, WATCH_SECONDS, CertificateUse, WatchedContext
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.metrics import CertificateMetrics
from umbilical.tunnel.settings import ListenAddress, ServerSettings, TcpFrontend, TlsFiles, TlsPolicy, UnixFrontend

VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


class WatchedFiles:
    """A listener's files, what watches them, and two authorities to take certificates from."""

    def __init__(self, plane: Loop, folder: Path) -> None:
        self.plane = plane
        (folder / "old").mkdir()
        (folder / "new").mkdir()
        self.old = FolderAuthority(folder / "old", "old-ca")
        self.new = FolderAuthority(folder / "new", "new-ca")
        self.first = self.old.serving("first")
        self.second = self.old.serving("second")
        self.live = LiveFiles(folder / "live")
        self.live.install(self.first, self.old)
        self.metrics = CertificateMetrics()
        self.watched = self.watch(self.live.files)

    def watch(self, files: TlsFiles) -> WatchedContext:
        build = partial(tls.listener_context, files, TlsPolicy(), "h2", "frontend")
        return WatchedContext(self.plane, CertificateUse("frontend", "UMB343", files, build), self.metrics)

    def wait(self, seconds: float = LOOK_SECONDS) -> None:
        self.plane.now += seconds

    def after(self, seconds: float = LOOK_SECONDS) -> ssl.SSLContext:
        """The context that a handshake gets after so much time."""
        self.wait(seconds)
        return self.watched.context()

    def client(self, authority: FolderAuthority | None = None) -> ssl.SSLContext:
        signer = authority or self.old
        context = self.old.client_context(signer.client("client"))
        context.load_verify_locations(self.new.certificate_file)
        return context

    def shown(self) -> bytes | None:
        return Ends(self.after(), self.client()).shown()

    def reloads(self) -> dict[tuple[str, ...], float]:
        return dict(self.metrics._reloads)


@pytest.fixture
def watch(plane: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[WatchedFiles]:
    caplog.set_level(logging.INFO, "umbilical.tunnel.certificates")
    yield WatchedFiles(plane, tmp_path)
    assert "PRIVATE KEY" not in caplog.text


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_files_that_stay_are_read_once(watch: WatchedFiles) -> None:
    context = watch.watched.context()
    assert watch.after() is context
    assert watch.after(WATCH_SECONDS) is context
    assert watch.reloads() == {}


def test_a_new_certificate_is_shown_in_the_next_handshake(
    watch: WatchedFiles, caplog: pytest.LogCaptureFixture
) -> None:
    assert watch.shown() == der(watch.first.certificate)
    watch.live.install_pair(watch.second)
    assert watch.shown() == der(watch.second.certificate)
    assert watch.reloads() == {("frontend", "success"): 1}
    (line,) = lines(caplog, logging.INFO)
    life = certificate_dates.of_file(watch.second.certificate)
    assert life is not None
    fingerprint = hashlib.sha256(der(watch.second.certificate)).hexdigest()[:16]
    assert line.startswith(f"certificates reloaded for new handshakes role=frontend certificate=sha256:{fingerprint} ")
    assert f"certificate_until={certificate_dates.shown(life.not_after)} ca_until=" in line


def test_handshakes_of_the_same_second_do_not_check_files(watch: WatchedFiles) -> None:
    context = watch.after()
    watch.live.install_pair(watch.second)
    assert watch.after(LOOK_SECONDS / 2) is context
    assert watch.after(LOOK_SECONDS / 2) is not context


def test_a_secret_that_is_mounted_changes_by_one_link(watch: WatchedFiles, tmp_path: Path) -> None:
    secret = MountedSecret(tmp_path / "secret")
    authority = watch.old.certificate_file
    secret.publish(tls_crt=watch.first.certificate, tls_key=watch.first.key, ca_crt=authority)
    files = TlsFiles(*(secret.folder / name for name in ("tls.crt", "tls.key", "ca.crt")))
    watch.watched = watch.watch(files)
    assert watch.shown() == der(watch.first.certificate)
    secret.publish(tls_crt=watch.second.certificate, tls_key=watch.second.key, ca_crt=authority)
    assert watch.shown() == der(watch.second.certificate)


def test_files_that_were_only_touched_are_not_a_change(watch: WatchedFiles, caplog: pytest.LogCaptureFixture) -> None:
    context = watch.watched.context()
    os.utime(watch.live.certificate, (1, 1))
    replace(watch.live.key, watch.live.key.read_bytes())
    assert watch.after() is context
    assert (watch.reloads(), caplog.records) == ({}, [])


def test_a_change_that_keeps_size_and_date_is_seen(watch: WatchedFiles, tmp_path: Path) -> None:
    def write(pair: Pair) -> None:
        for path, source in ((watch.live.certificate, pair.certificate), (watch.live.key, pair.key)):
            path.write_bytes(source.read_bytes().ljust(4096, b"\n"))
            os.utime(path, (1, 1))

    write(watch.first)
    assert watch.shown() == der(watch.first.certificate)
    write(watch.second)
    assert watch.shown() == der(watch.second.certificate)


def test_a_certificate_that_came_before_its_key_waits_for_it(
    watch: WatchedFiles, caplog: pytest.LogCaptureFixture
) -> None:
    replace(watch.live.certificate, watch.second.certificate.read_bytes())
    assert watch.shown() == der(watch.first.certificate)
    assert caplog.records == [], "the key may come in a moment"
    replace(watch.live.key, watch.second.key.read_bytes())
    assert watch.shown() == der(watch.second.certificate)
    assert watch.reloads() == {("frontend", "success"): 1}


def test_a_pair_that_does_not_fit_is_reported_once_and_the_old_one_stays(
    watch: WatchedFiles, caplog: pytest.LogCaptureFixture
) -> None:
    replace(watch.live.certificate, watch.second.certificate.read_bytes())
    for seconds in (LOOK_SECONDS, LOOK_SECONDS, LOOK_SECONDS, RETRY_SECONDS, RETRY_SECONDS):
        watch.wait(seconds)
        assert watch.shown() == der(watch.first.certificate)
    (line,) = lines(caplog, logging.WARNING)
    assert line == (
        "UMB343 changed certificate files cannot be used, the previous ones stay in use role=frontend: "
        f"cannot load the frontend key pair {watch.live.certificate} and {watch.live.key}: key values mismatch"
    )
    assert caplog.records[0].__dict__["fields"]["code"] == "UMB343"
    assert watch.reloads() == {("frontend", "failure"): 1}
    watch.live.install_pair(watch.second)
    assert watch.shown() == der(watch.second.certificate)
    assert watch.reloads() == {("frontend", "failure"): 1, ("frontend", "success"): 1}


@pytest.mark.parametrize("part", ["certificate", "key", "authority"])
@pytest.mark.parametrize("harm", ["gone", "empty", "half", "garbage"])
def test_whatever_is_wrong_with_a_new_file_the_old_ones_stay(
    watch: WatchedFiles, caplog: pytest.LogCaptureFixture, part: str, harm: str
) -> None:
    path: Path = getattr(watch.live, part)
    whole = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        replace(path, {"empty": b"", "half": whole[: len(whole) // 2], "garbage": b"\xff not PEM\n"}[harm])
    for _ in range(3):
        assert watch.shown() == der(watch.first.certificate)
    (line,) = lines(caplog, logging.WARNING)
    assert line.startswith("UMB343 ")
    assert str(path) in line
    replace(path, whole)
    assert watch.shown() == der(watch.first.certificate)
    assert lines(caplog, logging.INFO) != [], "whoever was warned is told that it is well again"


def test_another_fault_is_reported_again(watch: WatchedFiles, caplog: pytest.LogCaptureFixture) -> None:
    watch.live.authority.unlink()
    watch.after()
    watch.after()
    watch.live.key.unlink()
    watch.after()
    watch.after()
    told = lines(caplog, logging.WARNING)
    assert len(told) == 2
    assert str(watch.live.authority) in told[0]
    assert str(watch.live.key) in told[1]


def test_files_that_change_while_they_are_read_are_read_again(watch: WatchedFiles) -> None:
    files = watch.live.files
    written_meanwhile = iter([watch.first, watch.second])

    def build() -> ssl.SSLContext:
        context = tls.listener_context(files, TlsPolicy(), "h2", "frontend")
        for pair in written_meanwhile:
            watch.live.install_pair(pair)
            break
        return context

    watch.watched = WatchedContext(watch.plane, CertificateUse("frontend", "UMB343", files, build), watch.metrics)
    watch.wait()
    before = watch.watched.context()  # reads the first pair, while the second is written
    assert Ends(before, watch.client()).shown() == der(watch.first.certificate)
    assert watch.shown() == der(watch.second.certificate)


@VERSIONS
def test_no_session_from_before_is_resumed_past_a_new_authority(watch: WatchedFiles, version: ssl.TLSVersion) -> None:
    client = watch.client(watch.old)
    client.maximum_version = version
    first = Ends(watch.after(), client)
    assert Ends(watch.after(), client, first.client.session).server.session_reused, "as long as nothing has changed"
    watch.live.trust(watch.new)
    with pytest.raises(ssl.SSLError):
        Ends(watch.after(), client, first.client.session)


@VERSIONS
def test_a_session_from_before_falls_back_to_a_full_handshake(watch: WatchedFiles, version: ssl.TLSVersion) -> None:
    client = watch.client(watch.old)
    client.maximum_version = version
    first = Ends(watch.after(), client)
    watch.live.trust(watch.old, watch.new)
    again = Ends(watch.after(), client, first.client.session)
    assert not again.server.session_reused
    assert again.server.getpeercert()


def test_files_are_checked_without_a_handshake_too(watch: WatchedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    watch.watched.start()
    watch.live.install_pair(watch.second)
    clock = time.monotonic
    skipped = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: clock() + skipped)
    for _ in range(2):  # the timer sets itself anew
        skipped += WATCH_SECONDS
        watch.plane.turn(0.0)
    assert watch.reloads() == {("frontend", "success"): 1}
    watch.live.install_pair(watch.first)
    skipped += WATCH_SECONDS
    watch.plane.turn(0.0)
    assert watch.reloads() == {("frontend", "success"): 2}
    watch.watched.stop()
    watch.watched.stop()
    watch.live.install_pair(watch.second)
    skipped += WATCH_SECONDS
    watch.plane.turn(0.0)
    assert watch.reloads() == {("frontend", "success"): 2}


def test_the_end_of_each_is_a_metric_and_moves_with_the_files(watch: WatchedFiles) -> None:
    def end(path: Path) -> float:
        life = certificate_dates.of_file(path)
        assert life is not None
        return certificate_dates.seconds_of(life.not_after)

    assert watch.metrics.expiry == {
        ("frontend", "certificate"): end(watch.first.certificate),
        ("frontend", "ca"): end(watch.old.certificate_file),
    }
    watch.metrics.expiry.clear()
    watch.live.install(watch.new.serving("third"), watch.new)
    watch.after()
    assert watch.metrics.expiry == {
        ("frontend", "certificate"): end(watch.live.certificate),
        ("frontend", "ca"): end(watch.new.certificate_file),
    }


def test_of_several_authorities_the_last_to_end_counts(watch: WatchedFiles, tmp_path: Path) -> None:
    longer = OddPki(tmp_path)  # its authority outlives the others by a day
    replace(
        watch.live.authority,
        watch.old.certificate_file.read_bytes() + longer.authority_file.read_bytes(),
    )
    watch.after()
    life = certificate_dates.of_file(longer.authority_file)
    assert life is not None
    assert watch.metrics.expiry["frontend", "ca"] == certificate_dates.seconds_of(life.not_after)


def test_files_that_cannot_be_used_at_the_start_end_it(watch: WatchedFiles) -> None:
    watch.live.key.unlink()
    with pytest.raises(StartupError) as caught:
        watch.watch(watch.live.files)
    assert caught.value.code == "UMB022"


def test_a_server_watches_its_agents_listener_and_a_frontend_that_has_certificates(watch: WatchedFiles) -> None:
    def settings(frontend: UnixFrontend | TcpFrontend) -> ServerSettings:
        anywhere = ListenAddress("127.0.0.1", 0)
        return ServerSettings(server_id="s", frontend=frontend, agent_listen=anywhere, agent_tls=watch.live.files)

    metrics = CertificateMetrics()
    tcp = settings(TcpFrontend(ListenAddress("127.0.0.1", 0), watch.live.files))
    unix = settings(UnixFrontend(Path("/unused")))
    assert certificates.frontend(unix, "h2", watch.plane, metrics) is None
    assert certificates.frontend(tcp, "h2", watch.plane, metrics) is not None
    agents = certificates.agent_listener(tcp, watch.plane, metrics)
    assert agents.context().num_tickets == 0, "agents connect once"
    assert {role for role, _ in metrics.expiry} == {"agent-listener", "frontend"}


def test_an_agent_without_a_certificate_follows_its_authority(watch: WatchedFiles) -> None:
    files = TlsFiles(authority=watch.live.authority)
    build = partial(tls.agent_context, files, ())
    watched = WatchedContext(watch.plane, CertificateUse("agent", "UMB344", files, build), watch.metrics)
    server = watch.new.server_context(watch.new.serving("server"))
    with pytest.raises(ssl.SSLError):
        Ends(server, watched.context())
    watch.live.trust(watch.new)
    watch.wait()
    Ends(server, watched.context())
    assert ("agent", "certificate") not in watch.metrics.expiry
