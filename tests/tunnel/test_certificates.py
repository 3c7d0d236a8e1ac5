"""Certificates that change under a listener and an agent: what new handshakes see, and what the log and metrics say."""

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


class Scene:
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
def scene(plane: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Scene]:
    caplog.set_level(logging.INFO, "umbilical.tunnel.certificates")
    yield Scene(plane, tmp_path)
    assert "PRIVATE KEY" not in caplog.text


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_files_that_stay_are_read_once(scene: Scene) -> None:
    context = scene.watched.context()
    assert scene.after() is context
    assert scene.after(WATCH_SECONDS) is context
    assert scene.reloads() == {}


def test_a_new_certificate_is_shown_in_the_next_handshake(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    assert scene.shown() == der(scene.first.certificate)
    scene.live.install_pair(scene.second)
    assert scene.shown() == der(scene.second.certificate)
    assert scene.reloads() == {("frontend", "success"): 1}
    (line,) = lines(caplog, logging.INFO)
    life = certificate_dates.of_file(scene.second.certificate)
    assert life is not None
    fingerprint = hashlib.sha256(der(scene.second.certificate)).hexdigest()[:16]
    assert line.startswith(f"certificates reloaded for new handshakes role=frontend certificate=sha256:{fingerprint} ")
    assert f"certificate_until={certificate_dates.shown(life.not_after)} ca_until=" in line


def test_handshakes_of_the_same_second_do_not_look(scene: Scene) -> None:
    context = scene.after()
    scene.live.install_pair(scene.second)
    assert scene.after(LOOK_SECONDS / 2) is context
    assert scene.after(LOOK_SECONDS / 2) is not context


def test_a_secret_that_is_mounted_changes_by_one_link(scene: Scene, tmp_path: Path) -> None:
    secret = MountedSecret(tmp_path / "secret")
    authority = scene.old.certificate_file
    secret.publish(tls_crt=scene.first.certificate, tls_key=scene.first.key, ca_crt=authority)
    files = TlsFiles(*(secret.folder / name for name in ("tls.crt", "tls.key", "ca.crt")))
    scene.watched = scene.watch(files)
    assert scene.shown() == der(scene.first.certificate)
    secret.publish(tls_crt=scene.second.certificate, tls_key=scene.second.key, ca_crt=authority)
    assert scene.shown() == der(scene.second.certificate)


def test_files_that_were_only_touched_are_no_news(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    context = scene.watched.context()
    os.utime(scene.live.certificate, (1, 1))
    replace(scene.live.key, scene.live.key.read_bytes())
    assert scene.after() is context
    assert (scene.reloads(), caplog.records) == ({}, [])


def test_a_change_that_keeps_size_and_date_is_seen(scene: Scene, tmp_path: Path) -> None:
    def write(pair: Pair) -> None:
        for path, source in ((scene.live.certificate, pair.certificate), (scene.live.key, pair.key)):
            path.write_bytes(source.read_bytes().ljust(4096, b"\n"))
            os.utime(path, (1, 1))

    write(scene.first)
    assert scene.shown() == der(scene.first.certificate)
    write(scene.second)
    assert scene.shown() == der(scene.second.certificate)


def test_a_certificate_that_came_before_its_key_waits_for_it(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    replace(scene.live.certificate, scene.second.certificate.read_bytes())
    assert scene.shown() == der(scene.first.certificate)
    assert caplog.records == [], "the key may come in a moment"
    replace(scene.live.key, scene.second.key.read_bytes())
    assert scene.shown() == der(scene.second.certificate)
    assert scene.reloads() == {("frontend", "success"): 1}


def test_a_pair_that_does_not_fit_is_told_once_and_the_old_one_stays(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    replace(scene.live.certificate, scene.second.certificate.read_bytes())
    for seconds in (LOOK_SECONDS, LOOK_SECONDS, LOOK_SECONDS, RETRY_SECONDS, RETRY_SECONDS):
        scene.wait(seconds)
        assert scene.shown() == der(scene.first.certificate)
    (line,) = lines(caplog, logging.WARNING)
    assert line == (
        "UMB343 changed certificate files cannot be used, the previous ones stay in use role=frontend: "
        f"cannot load the frontend key pair {scene.live.certificate} and {scene.live.key}: key values mismatch"
    )
    assert caplog.records[0].__dict__["fields"]["code"] == "UMB343"
    assert scene.reloads() == {("frontend", "failure"): 1}
    scene.live.install_pair(scene.second)
    assert scene.shown() == der(scene.second.certificate)
    assert scene.reloads() == {("frontend", "failure"): 1, ("frontend", "success"): 1}


@pytest.mark.parametrize("part", ["certificate", "key", "authority"])
@pytest.mark.parametrize("harm", ["gone", "empty", "half", "garbage"])
def test_whatever_is_wrong_with_a_new_file_the_old_ones_stay(
    scene: Scene, caplog: pytest.LogCaptureFixture, part: str, harm: str
) -> None:
    path: Path = getattr(scene.live, part)
    whole = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        replace(path, {"empty": b"", "half": whole[: len(whole) // 2], "garbage": b"\xff not PEM\n"}[harm])
    for _ in range(3):
        assert scene.shown() == der(scene.first.certificate)
    (line,) = lines(caplog, logging.WARNING)
    assert line.startswith("UMB343 ")
    assert str(path) in line
    replace(path, whole)
    assert scene.shown() == der(scene.first.certificate)
    assert lines(caplog, logging.INFO) != [], "whoever was warned is told that it is well again"


def test_another_fault_is_told_anew(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.live.authority.unlink()
    scene.after()
    scene.after()
    scene.live.key.unlink()
    scene.after()
    scene.after()
    told = lines(caplog, logging.WARNING)
    assert len(told) == 2
    assert str(scene.live.authority) in told[0]
    assert str(scene.live.key) in told[1]


def test_files_that_change_while_they_are_read_are_read_again(scene: Scene) -> None:
    files = scene.live.files
    written_meanwhile = iter([scene.first, scene.second])

    def build() -> ssl.SSLContext:
        context = tls.listener_context(files, TlsPolicy(), "h2", "frontend")
        for pair in written_meanwhile:
            scene.live.install_pair(pair)
            break
        return context

    scene.watched = WatchedContext(scene.plane, CertificateUse("frontend", "UMB343", files, build), scene.metrics)
    scene.wait()
    before = scene.watched.context()  # reads the first pair, while the second is written
    assert Ends(before, scene.client()).shown() == der(scene.first.certificate)
    assert scene.shown() == der(scene.second.certificate)


@VERSIONS
def test_no_session_from_before_is_resumed_past_a_new_authority(scene: Scene, version: ssl.TLSVersion) -> None:
    client = scene.client(scene.old)
    client.maximum_version = version
    first = Ends(scene.after(), client)
    assert Ends(scene.after(), client, first.client.session).server.session_reused, "as long as nothing has changed"
    scene.live.trust(scene.new)
    with pytest.raises(ssl.SSLError):
        Ends(scene.after(), client, first.client.session)


@VERSIONS
def test_a_session_from_before_falls_back_to_a_full_handshake(scene: Scene, version: ssl.TLSVersion) -> None:
    client = scene.client(scene.old)
    client.maximum_version = version
    first = Ends(scene.after(), client)
    scene.live.trust(scene.old, scene.new)
    again = Ends(scene.after(), client, first.client.session)
    assert not again.server.session_reused
    assert again.server.getpeercert()


def test_files_are_looked_at_without_a_handshake_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.watched.start()
    scene.live.install_pair(scene.second)
    clock = time.monotonic
    skipped = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: clock() + skipped)
    for _ in range(2):  # the timer sets itself anew
        skipped += WATCH_SECONDS
        scene.plane.turn(0.0)
    assert scene.reloads() == {("frontend", "success"): 1}
    scene.live.install_pair(scene.first)
    skipped += WATCH_SECONDS
    scene.plane.turn(0.0)
    assert scene.reloads() == {("frontend", "success"): 2}
    scene.watched.stop()
    scene.watched.stop()
    scene.live.install_pair(scene.second)
    skipped += WATCH_SECONDS
    scene.plane.turn(0.0)
    assert scene.reloads() == {("frontend", "success"): 2}


def test_the_end_of_each_is_a_metric_and_moves_with_the_files(scene: Scene) -> None:
    def end(path: Path) -> float:
        life = certificate_dates.of_file(path)
        assert life is not None
        return certificate_dates.seconds_of(life.not_after)

    assert scene.metrics.expiry == {
        ("frontend", "certificate"): end(scene.first.certificate),
        ("frontend", "ca"): end(scene.old.certificate_file),
    }
    scene.metrics.expiry.clear()
    scene.live.install(scene.new.serving("third"), scene.new)
    scene.after()
    assert scene.metrics.expiry == {
        ("frontend", "certificate"): end(scene.live.certificate),
        ("frontend", "ca"): end(scene.new.certificate_file),
    }


def test_of_several_authorities_the_last_to_end_counts(scene: Scene, tmp_path: Path) -> None:
    longer = OddPki(tmp_path)  # its authority outlives the others by a day
    replace(scene.live.authority, scene.old.certificate_file.read_bytes() + longer.authority_file.read_bytes())
    scene.after()
    life = certificate_dates.of_file(longer.authority_file)
    assert life is not None
    assert scene.metrics.expiry["frontend", "ca"] == certificate_dates.seconds_of(life.not_after)


def test_files_that_cannot_be_used_at_the_start_end_it(scene: Scene) -> None:
    scene.live.key.unlink()
    with pytest.raises(StartupError) as caught:
        scene.watch(scene.live.files)
    assert caught.value.code == "UMB022"


def test_a_server_watches_its_agents_listener_and_a_frontend_that_has_certificates(scene: Scene) -> None:
    def settings(frontend: UnixFrontend | TcpFrontend) -> ServerSettings:
        anywhere = ListenAddress("127.0.0.1", 0)
        return ServerSettings(server_id="s", frontend=frontend, agent_listen=anywhere, agent_tls=scene.live.files)

    metrics = CertificateMetrics()
    tcp = settings(TcpFrontend(ListenAddress("127.0.0.1", 0), scene.live.files))
    unix = settings(UnixFrontend(Path("/unused")))
    assert certificates.frontend(unix, "h2", scene.plane, metrics) is None
    assert certificates.frontend(tcp, "h2", scene.plane, metrics) is not None
    agents = certificates.agent_listener(tcp, scene.plane, metrics)
    assert agents.context().num_tickets == 0, "agents connect once"
    assert {role for role, _ in metrics.expiry} == {"agent-listener", "frontend"}


def test_an_agent_without_a_certificate_follows_its_authority(scene: Scene) -> None:
    files = TlsFiles(authority=scene.live.authority)
    build = partial(tls.agent_context, files, ())
    watched = WatchedContext(scene.plane, CertificateUse("agent", "UMB344", files, build), scene.metrics)
    server = scene.new.server_context(scene.new.serving("server"))
    with pytest.raises(ssl.SSLError):
        Ends(server, watched.context())
    scene.live.trust(scene.new)
    scene.wait()
    Ends(server, watched.context())
    assert ("agent", "certificate") not in scene.metrics.expiry
