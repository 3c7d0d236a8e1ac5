"""Dates of certificates: which replace which, and when the log warns of their expiry."""

import asyncio
import logging
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.in_process import RunningServer, Stage, echo
from tests.support.live_certificates import LiveFiles, der
from tests.support.live_certificates import replace as replace_file
from tests.support.odd_certificates import DAY, OddPki, replace_certificate_file
from tests.support.tunnel_client import Frontend, assert_echoes
from tests.support.tunnel_pki import FolderAuthority, Pair, TunnelPki

from umbilical.tunnel import certificate_dates, tls
from umbilical.tunnel.certificate_dates import Validity
from umbilical.tunnel.certificates import (
    LOOK_SECONDS,
    RETRY_SECONDS,
    WATCH_SECONDS,
    CertificateUse,
    WatchedContext,
    age_of,
)
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.metrics import CertificateMetrics
from umbilical.tunnel.settings import AgentSettings, ServerAddress, TlsFiles, TlsPolicy


@pytest.fixture
def odd(tmp_path: Path) -> OddPki:
    return OddPki(tmp_path)


def test_the_dates_of_a_certificate_are_read(odd: OddPki) -> None:
    found = certificate_dates.of_file(odd.agent(starts=DAY).certificate)
    start, end = odd.now + DAY - timedelta(hours=1), odd.now + 2 * DAY
    assert found == Validity(f"{start:%Y%m%d%H%M%S}", f"{end:%Y%m%d%H%M%S}")
    assert found.span == f"from {start:%Y-%m-%dT%H:%M:%S}Z until {end:%Y-%m-%dT%H:%M:%S}Z"


def test_dates_far_away_have_another_form(odd: OddPki) -> None:
    found = certificate_dates.of_file(odd.agent(life=timedelta(days=40_000)).certificate)
    assert found is not None
    assert found.not_after == f"{odd.now + timedelta(days=40_000):%Y%m%d%H%M%S}"


@pytest.mark.parametrize(
    "text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA", b"\xff\xfe".decode("latin-1")]
)
def test_a_file_that_holds_no_certificate_has_no_dates(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    assert certificate_dates.of_file(path) is None
    assert certificate_dates.of_file(tmp_path / "gone") is None


@given(st.datetimes(datetime(1950, 1, 1), datetime(9999, 12, 31, 23, 59, 59)))
def test_seconds_are_those_of_the_calendar(moment: datetime) -> None:
    expected = moment.replace(microsecond=0, tzinfo=UTC).timestamp()
    assert certificate_dates.seconds_of(f"{moment:%Y%m%d%H%M%S}") == expected


@pytest.mark.parametrize("moment", ["20261301000000", "20260100000000", "20260132000000", "20260101240000"])
def test_a_moment_that_no_calendar_has_is_refused(moment: str) -> None:
    with pytest.raises(ValueError, match="there is no"):
        certificate_dates.seconds_of(moment)


def test_a_certificate_holds_from_its_first_second_to_its_last() -> None:
    life = Validity("19700101000010", "19700101000020")
    assert [life.holds_at(second) for second in (9, 10, 20, 21)] == [False, True, True, False]


@given(st.binary(max_size=200))
def test_no_bytes_do_worse_than_a_value_error(data: bytes) -> None:
    try:
        certificate_dates.of_der(data)
    except ValueError:
        return


@given(position=st.integers(0, 400), octet=st.integers(0, 255))
def test_no_change_of_a_real_certificate_does_worse(certificate: bytes, position: int, octet: int) -> None:
    changed = bytearray(certificate)
    changed[position % len(changed)] = octet
    try:
        found = certificate_dates.of_der(bytes(changed))
    except ValueError:
        return
    assert len(found.not_before) == len(found.not_after) == 14


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return ssl.PEM_cert_to_DER_cert(OddPki(tmp_path_factory.mktemp("pki")).agent().certificate.read_text())


def settings(pki: TunnelPki, port: int) -> AgentSettings:
    tls = TlsFiles(pki.agent.certificate, pki.agent.key, pki.authority.certificate_file)
    return AgentSettings("a", (ServerAddress("127.0.0.1", port),), tls)


def explained(settings: AgentSettings, code: str) -> str:
    return asyncio.run(certificate_dates.explain(settings, settings.servers[0], None, code))


def test_the_dates_and_names_of_a_server_are_reported_and_the_server_is_not_affected(
    tunnel_pki: TunnelPki, tmp_path: Path, odd: OddPki, caplog: pytest.LogCaptureFixture
) -> None:
    pki = odd.tunnel(tunnel_pki, odd.server(starts=DAY, hosts=("web", "::1")), odd.agent())
    stage = Stage(pki, tmp_path)
    try:
        ours = settings(pki, stage.start_server().agent_port)
        assert explained(ours, "UMB323") == "; the certificate is for web, 0:0:0:0:0:0:0:1"
        assert f"only from {odd.now + DAY - timedelta(hours=1):%Y-%m-%dT%H:%M:%S}Z" in explained(ours, "UMB322")
        assert f"until {odd.now + 2 * DAY:%Y-%m-%dT%H:%M:%S}Z" in explained(ours, "UMB321")
        stage.eventually(lambda: not stage.servers[0].server.core.transports)
    finally:
        stage.stop()
    assert caplog.messages == []


def test_a_server_that_is_gone_or_untrusted_adds_no_text(stage: Stage, odd: OddPki) -> None:
    port = stage.start_server().agent_port
    stranger = settings(odd.tunnel(stage.pki, odd.server(), odd.agent()), port)
    assert explained(stranger, "UMB322") == ""
    stage.call(stage.servers[0].server.close)
    assert explained(settings(stage.pki, port), "UMB322") == ""


def test_only_questions_of_dates_and_names_are_examined_and_only_with_files(stage: Stage, tmp_path: Path) -> None:
    ours = settings(stage.pki, 1)
    assert explained(ours, "UMB311") == ""
    assert explained(ours, "UMB331").startswith("; our certificate is valid from 20")
    assert explained(AgentSettings("a", ours.servers, TlsFiles()), "UMB331") == ""
    gone = TlsFiles(authority=tmp_path / "gone")
    assert explained(AgentSettings("a", ours.servers, gone), "UMB322") == ""


class OddLive:
    """A listener with certificates of chosen dates."""

    def __init__(self, plane: Loop, odd: OddPki, pair: Pair) -> None:
        self.plane = plane
        self.live = LiveFiles(odd.folder / "live")
        replace_file(self.live.authority, odd.authority_file.read_bytes())
        self.install(pair)
        files = self.live.files
        self.metrics = CertificateMetrics()
        build = partial(tls.listener_context, files, TlsPolicy(), "h2", "agent")
        self.watched = WatchedContext(plane, CertificateUse("agent-listener", "UMB343", files, build), self.metrics)

    def install(self, pair: Pair) -> None:
        self.live.install_pair(pair)

    def after(self, seconds: float = LOOK_SECONDS) -> ssl.SSLContext:
        self.plane.now += seconds
        return self.watched.context()


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_an_expired_certificate_does_not_replace_one_that_is_valid(
    plane: Loop, odd: OddPki, caplog: pytest.LogCaptureFixture
) -> None:
    live = OddLive(plane, odd, odd.server())
    live.install(odd.server(starts=-DAY, life=timedelta(hours=2)))
    valid = live.watched.context()
    assert (live.after(), live.after()) == (valid, valid)
    (line,) = lines(caplog, logging.WARNING)
    assert line.startswith("UMB343 ")
    assert line.endswith("Z, not now")


def test_a_certificate_of_tomorrow_is_taken_when_its_time_has_come(
    plane: Loop, odd: OddPki, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = OddLive(plane, odd, odd.server())
    early = live.watched.context()
    live.install(odd.server(starts=timedelta(hours=12)))
    assert (live.after(), live.after()) == (early, early)
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 13 * 3600)
    assert live.after(LOOK_SECONDS) is early, "the files are the same: no need to hurry"
    assert live.after(RETRY_SECONDS) is not early


def test_where_nothing_is_valid_anything_that_loads_is_taken(plane: Loop, odd: OddPki) -> None:
    live = OddLive(plane, odd, odd.server(starts=-DAY, life=timedelta(hours=2)))
    before = live.watched.context()
    live.install(odd.server(starts=-DAY, life=timedelta(hours=3)))
    assert live.after() is not before


@pytest.mark.parametrize(
    ("days", "left", "words"),
    [
        (1.0, 3 * 3600, ""),
        (1.0, 2 * 3600, "expires soon"),
        (365.0, 25 * 3600, ""),
        (365.0, 23 * 3600, "expires soon"),
        (365.0, 0, "expires soon"),
        (365.0, -1, "has expired"),
    ],
)
def test_the_last_tenth_of_a_life_is_old_but_never_more_than_a_day(days: float, left: float, words: str) -> None:
    end = datetime(2026, 11, 15, 12, tzinfo=UTC)
    life = Validity(*(f"{moment:%Y%m%d%H%M%S}" for moment in (end - timedelta(days=days), end)))
    assert age_of(life, end.timestamp() - left) == words


def test_age_is_reported_once_for_each_state_and_again_for_new_files(
    plane: Loop, odd: OddPki, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = odd.server(life=timedelta(hours=10))
    live = OddLive(plane, odd, pair)
    clock, passed = time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: clock() + passed)
    live.after()
    assert caplog.records == []
    for hours in (9.5, 9.6, 11, 12):
        passed = hours * 3600
        live.after()
    soon, over = lines(caplog, logging.WARNING)
    life = certificate_dates.of_file(pair.certificate)
    assert life is not None
    place = f"role=agent-listener file={live.live.certificate} until={certificate_dates.shown(life.not_after)}"
    assert soon == f"UMB345 the certificate in use expires soon {place}"
    assert over == f"UMB345 the certificate in use has expired {place}"
    assert "umbilical pki rotate" in caplog.records[0].__dict__["fields"]["next"]
    live.install(odd.server(life=timedelta(hours=13)))
    live.after()
    assert len(lines(caplog, logging.WARNING)) == 3


def test_an_old_certificate_is_reported_at_the_start(
    plane: Loop, odd: OddPki, caplog: pytest.LogCaptureFixture
) -> None:
    live = OddLive(plane, odd, odd.server(starts=-DAY, life=timedelta(hours=2)))
    live.watched.start()
    (line,) = lines(caplog, logging.WARNING)
    assert "UMB345 the certificate in use has expired" in line
    live.watched.stop()


class Rotation:
    """Two signers, and the files of a server and of its agents."""

    def __init__(self, pki: TunnelPki, folder: Path) -> None:
        (folder / "old").mkdir()
        (folder / "new").mkdir()
        self.old = FolderAuthority(folder / "old", "old-ca")
        self.new = FolderAuthority(folder / "new", "new-ca")
        self.server = LiveFiles(folder / "server")
        self.server.install(self.old.serving("server"), self.old)
        self.agent = LiveFiles(folder / "agent")
        self.agent.install(self.old.client("agent"), self.old)
        self.stage = Stage(self._pki(pki), folder)

    def _pki(self, pki: TunnelPki) -> TunnelPki:
        served = replace_certificate_file(pki, self.server.authority)
        pair = Pair(self.server.certificate, self.server.key)
        return replace(served, server=pair, client=self.old.client("client"))

    def client_of(self, server: RunningServer, signer: FolderAuthority) -> Frontend:
        """A client with a certificate of the signer that trusts only the signer."""
        return replace(server.frontend, tls=signer.client_context(signer.client("client"), ["http/1.1"]))


@pytest.fixture
def rotation(tunnel_pki: TunnelPki, tmp_path: Path) -> Iterator[Rotation]:
    rotation = Rotation(tunnel_pki, tmp_path)
    yield rotation
    rotation.stage.stop()


def reloads(text: bytes) -> dict[str, int]:
    """By role, those that succeeded."""
    family = "umbilical_certificate_reloads_total{"
    lines = [line for line in text.decode().splitlines() if line.startswith(family)]
    assert all('result="success"' in line for line in lines), lines
    return {line.partition('role="')[2].partition('"')[0]: int(line.rpartition(" ")[2]) for line in lines}


def cut(server: RunningServer) -> None:
    for transport in list(server.server.core.transports):
        transport.lose("cut")


def test_a_signer_and_both_certificates_are_replaced_under_a_live_tunnel(
    rotation: Rotation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage, old, new = rotation.stage, rotation.old, rotation.new
    server = stage.start_server(tcp=True)
    agent = stage.start_agent(server.agent_port, tls=rotation.agent.files)
    server.wait_for_agents()
    endpoint = stage.endpoint().serve(echo)
    tunnel = server.frontend.open(endpoint.address)
    assert_echoes(tunnel, b"before")

    def taken(count: int) -> bool:
        both = {"agent-listener": count, "frontend": count}
        return reloads(server.server.render_metrics()) == both and reloads(
            agent.agent.metrics.render(agent.agent.gauges())
        ) == {"agent": count}

    def wait_until_taken(count: int) -> None:
        stage.skip(WATCH_SECONDS, monkeypatch)
        stage.eventually(lambda: taken(count))
        assert_echoes(tunnel, b"step %d" % count)

    for live in (rotation.server, rotation.agent):
        live.trust(new, old)
    wait_until_taken(1)
    rotation.server.install_pair(new.serving("server"))
    rotation.agent.install_pair(new.client("agent"))
    wait_until_taken(2)
    for live in (rotation.server, rotation.agent):
        live.trust(new)
    wait_until_taken(3)

    stage.start_agent(server.agent_port, tls=rotation.agent.files)
    server.wait_for_agents(2)
    fresh = rotation.client_of(server, new)
    with fresh.connect() as sock:
        assert isinstance(sock, ssl.SSLSocket)
        assert sock.getpeercert(binary_form=True) == der(rotation.server.certificate)
    assert_echoes(fresh.open(endpoint.address), b"after")

    late = old.client("late")
    stage.start_agent(server.agent_port, tls=TlsFiles(late.certificate, late.key, new.certificate_file))
    stage.eventually(lambda: "UMB305" in caplog.text)
    assert server.gauges().connect_streams == 2
    assert_echoes(tunnel, b"the first tunnel still")

    # The agent that has been here all along comes back with what it took meanwhile.
    stage.call(lambda: cut(server))
    server.wait_for_agents(2)
    assert_echoes(fresh.open(endpoint.address), b"again")


def test_a_bad_file_keeps_listeners_and_agents_on_the_old_ones(
    rotation: Rotation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = rotation.stage
    server = stage.start_server(tcp=True)
    stage.start_agent(server.agent_port, tls=rotation.agent.files)
    server.wait_for_agents()
    rotation.server.certificate.write_bytes(rotation.server.certificate.read_bytes()[:100])
    rotation.agent.key.unlink()
    stage.skip(WATCH_SECONDS, monkeypatch)  # the first look, which may have come between two writes
    stage.skip(WATCH_SECONDS, monkeypatch)
    stage.eventually(lambda: caplog.text.count("UMB343") >= 2 and "UMB344" in caplog.text, 4 * WATCH_SECONDS)
    assert caplog.text.count("UMB343") == 2, "one for each listener"
    other = rotation.old.client("other")
    trusted = rotation.old.certificate_file
    stage.start_agent(server.agent_port, tls=TlsFiles(other.certificate, other.key, trusted))
    server.wait_for_agents(2)
    tunnel = server.frontend.open(stage.endpoint().serve(echo).address)
    assert_echoes(tunnel, b"served with the old ones")
