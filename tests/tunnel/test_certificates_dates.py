"""Certificates whose dates matter: which replace which, and when the log warns of their end."""

import logging
import ssl
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from tests.support.live_certificates import LiveFiles, replace
from tests.support.odd_certificates import DAY, OddPki
from tests.support.tunnel_pki import Pair

from umbilical.tunnel import tls, validity
from umbilical.tunnel.certificates import LOOK_SECONDS, RETRY_SECONDS, Use, WatchedContext, age_of
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.metrics import CertificateMetrics
from umbilical.tunnel.settings import TlsPolicy
from umbilical.tunnel.validity import Validity


class OddLive:
    """A listener whose certificates have dates of their own."""

    def __init__(self, plane: Loop, odd: OddPki, pair: Pair) -> None:
        self.plane = plane
        self.live = LiveFiles(odd.folder / "live")
        replace(self.live.authority, odd.authority_file.read_bytes())
        self.install(pair)
        files = self.live.files
        self.metrics = CertificateMetrics()
        build = partial(tls.listener_context, files, TlsPolicy(), "h2", "agent")
        self.watched = WatchedContext(plane, Use("agent-listener", "UMB343", files, build), self.metrics)

    def install(self, pair: Pair) -> None:
        self.live.install_pair(pair)

    def after(self, seconds: float = LOOK_SECONDS) -> ssl.SSLContext:
        self.plane.now += seconds
        return self.watched.context()


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_an_expired_certificate_does_not_replace_one_that_is_valid(
    plane: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = OddPki(tmp_path)
    live = OddLive(plane, odd, odd.server())
    live.install(odd.server(starts=-DAY, life=timedelta(hours=2)))
    valid = live.watched.context()
    assert (live.after(), live.after()) == (valid, valid)
    (line,) = lines(caplog, logging.WARNING)
    assert line.startswith("UMB343 ")
    assert line.endswith("which is not now")


def test_a_certificate_of_tomorrow_is_taken_when_its_time_has_come(
    plane: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = OddPki(tmp_path)
    live = OddLive(plane, odd, odd.server())
    early = live.watched.context()
    live.install(odd.server(starts=timedelta(hours=12)))
    assert (live.after(), live.after()) == (early, early)
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 13 * 3600)
    assert live.after(LOOK_SECONDS) is early, "the files are the same: no need to hurry"
    assert live.after(RETRY_SECONDS) is not early


def test_where_nothing_is_valid_anything_that_loads_is_taken(plane: Loop, tmp_path: Path) -> None:
    odd = OddPki(tmp_path)
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


def test_age_is_told_once_for_each_state_and_anew_for_new_files(
    plane: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = OddPki(tmp_path)
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
    life = validity.of_file(pair.certificate)
    assert life is not None
    place = f"role=agent-listener file={live.live.certificate} until={validity.shown(life.not_after)}"
    assert soon == f"UMB345 the certificate in use expires soon {place}"
    assert over == f"UMB345 the certificate in use has expired {place}"
    assert "umbilical pki rotate" in caplog.records[0].__dict__["fields"]["next"]
    live.install(odd.server(life=timedelta(hours=13)))
    live.after()
    assert len(lines(caplog, logging.WARNING)) == 3


def test_an_old_certificate_is_told_at_the_start(plane: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    odd = OddPki(tmp_path)
    live = OddLive(plane, odd, odd.server(starts=-DAY, life=timedelta(hours=2)))
    live.watched.start()
    (line,) = lines(caplog, logging.WARNING)
    assert "UMB345 the certificate in use has expired" in line
    live.watched.stop()
