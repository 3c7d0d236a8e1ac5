"""Rows and lines of pings: times with the digits that matter, crosses where it broke, no control characters."""

from datetime import UTC, datetime, timedelta

import pytest

from umbilical.cli import ping_text
from umbilical.hosted.endpoint_tls import TlsFacts
from umbilical.hosted.trip import Failure, Hop, Trip, summarize
from umbilical.pki.authority import Authority
from umbilical.pki.certificate import read_certificates
from umbilical.pki.profiles import KeyType, server_profile

NOW = datetime(2026, 11, 1, tzinfo=UTC)
DAY = timedelta(days=1)
HOPS = ["connect", "tls", "agent", "dial"]
PASSED = (Hop("connect", 0.001), Hop("tls", 0.002), Hop("agent", 0.0001, "a1"), Hop("dial", 0.5))
REFUSED = Failure("dial", "UMB501", "refused", "what", "why\x1b[31m", "next")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.00ms"), (0.00042, "0.42ms"), (0.0123, "12.3ms"), (0.5, "500ms"), (1.239, "1.24s"), (61, "61.00s")],
)
def test_times_have_three_digits(seconds: float, text: str) -> None:
    assert ping_text.milliseconds(seconds) == text


def test_columns_are_the_hops_that_there_can_be() -> None:
    assert ping_text.columns(tls=False, unix=False) == HOPS
    assert ping_text.columns(tls=True, unix=True) == ["connect", "agent", "dial", "endpoint tls"]


def test_rows_stand_under_their_header() -> None:
    header = ping_text.header(HOPS)
    row = ping_text.row(Trip(1, PASSED), HOPS, unicode=True)
    for name, cell in (("connect", "1.00ms"), ("dial", "500ms"), ("total", "503ms")):
        assert header.index(name) + len(name) == row.index(cell) + len(cell)
    assert row.endswith("ok, agent a1")


def test_a_failure_is_a_cross_at_its_hop_and_its_words_cannot_move_the_cursor() -> None:
    row = ping_text.row(Trip(2, PASSED, REFUSED), HOPS, unicode=True)
    assert "× 500ms" in row
    assert "\x1b" not in row
    assert row.endswith("UMB501 dial, agent a1: why\\x1b[31m")
    assert "x 500ms" in ping_text.row(Trip(2, PASSED, REFUSED), HOPS, unicode=False)
    early = Failure("connect", "UMB507", "server", "what", "why", "next")
    assert ping_text.row(Trip(1, (), early), HOPS, unicode=True).split() == [
        *("1", "×", "-", "-", "-", "-", "UMB507", "connect:", "why")
    ]


def test_a_server_that_does_not_tell_its_agent_is_said_to() -> None:
    trip = Trip(1, (Hop("connect", 0.1), Hop("dial", 0.1)))
    assert ping_text.details([trip], NOW) == ["agent     not told by this server"]
    assert ping_text.row(trip, HOPS, unicode=True).endswith("ok")
    assert ping_text.details([Trip(1, (), REFUSED)], NOW) == []


def facts(*, is_verified: bool) -> TlsFacts:
    authority = Authority.create("signer", NOW - DAY, 10 * DAY, KeyType.ECDSA_P256)
    pair = authority.issue(server_profile("webhook", ["webhook.svc", "10.0.0.1"], KeyType.ECDSA_P256), NOW, DAY)
    return TlsFacts("TLSv1.3", read_certificates(pair.certificate)[0], is_verified)


def test_a_certificate_is_one_line_with_names_issuer_and_end() -> None:
    assert ping_text.tls_line(facts(is_verified=True), NOW, "x") == (
        "TLSv1.3, CN=webhook, DNS:webhook.svc, IP:10.0.0.1, signed by signer, expires in 24h00m"
    )
    assert ping_text.tls_line(facts(is_verified=False), NOW, "not verified").endswith(", not verified")
    assert ping_text.tls_line(TlsFacts("TLSv1.2", None, True), NOW, "x") == "TLSv1.2, its certificate cannot be read"


def test_the_summary_counts_and_stands_in_columns() -> None:
    lines = ping_text.summary_lines(summarize([Trip(1, PASSED), Trip(2, PASSED, REFUSED)]), HOPS)
    assert lines[0] == "2 sent, 1 ok, 50% lost"
    assert [line.split()[0] for line in lines[1:]] == ["min", "avg", "max"]
    assert ping_text.summary_lines(summarize([Trip(1, (), REFUSED)]), HOPS) == ["1 sent, 0 ok, 100% lost"]


def test_a_failure_is_three_lines() -> None:
    assert ping_text.failure_lines(REFUSED).splitlines() == ["UMB501 what", "  why: why\\x1b[31m", "  next: next"]
