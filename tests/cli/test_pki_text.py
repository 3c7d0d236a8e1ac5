"""Spans, moments and lines."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.tunnel_directories import new_authority

from umbilical.cli.pki_text import alternative_names, as_value, expiry, kind, moment, short_line, span, tell_cut
from umbilical.pki.authority import Authority
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.profiles import KeyType, Profile, Usage

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
AUTHORITY = Authority.create("signer", NOW, DAY, KeyType.ECDSA_P256)


def leaf(*usages: Usage, names: tuple[str, ...] = ()) -> Certificate:
    profile = Profile("x", usages, dns_names=names, key_type=KeyType.ECDSA_P256)
    return read_certificates(AUTHORITY.issue(profile, NOW, DAY).certificate)[0]


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(hours=22, minutes=41), "22h41m"),
        (timedelta(days=2), "48h00m"),
        (timedelta(days=3, hours=4), "3d04h"),
        (timedelta(minutes=59, seconds=59), "59m"),
        (timedelta(seconds=90), "90s"),
        (timedelta(), "0s"),
        (-DAY, "0s"),
    ],
)
def test_a_span_is_as_precise_as_it_helps(length: timedelta, text: str) -> None:
    assert span(length) == text


def test_a_moment_is_in_utc() -> None:
    assert moment(NOW) == "2026-11-15 12:00 UTC"


def test_expiry_is_told_from_now_on() -> None:
    certificate = leaf(Usage.SERVER)
    assert expiry(certificate, NOW) == "expires in 24h00m"
    assert expiry(certificate, NOW + 2 * DAY) == "expired 24h00m ago"
    assert expiry(certificate, NOW - DAY) == "begins in 23h00m"


def test_kinds_are_told_by_what_a_certificate_may_do() -> None:
    assert kind(read_certificates(AUTHORITY.certificate_pem)[0]) == "authority"
    assert kind(leaf(Usage.SERVER)) == "server"
    assert kind(leaf(Usage.SERVER, Usage.CLIENT)) == "server+client"


def test_a_line_has_names_only_where_there_are_some() -> None:
    with_names, without = leaf(Usage.SERVER, names=("a", "b")), leaf(Usage.CLIENT)
    assert alternative_names(with_names) == ["DNS:a", "DNS:b"]
    assert " SAN DNS:a,DNS:b expires in 24h00m signed-by signer" in short_line(with_names, NOW)
    assert "SAN" not in short_line(without, NOW)
    assert as_value(without, NOW)["dnsNames"] == []


def test_a_cut_is_told_only_where_there_is_one(capfd: pytest.CaptureFixture[str]) -> None:
    authority = new_authority(NOW, DAY)
    tell_cut(authority, NOW, DAY)
    assert capfd.readouterr().err == ""
    tell_cut(authority, NOW + timedelta(hours=20), DAY)
    assert "end in 4h00m, not 24h00m: konnectivity-signer ends at 2026-11-16 12:00 UTC" in capfd.readouterr().err
