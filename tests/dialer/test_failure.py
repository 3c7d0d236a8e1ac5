"""Every reason has its words in every protocol, and no two share a code."""

import pytest
from tests.architecture.rooms import TESTS

from umbilical.dialer.failure import MAX_TEXT, VERDICTS, DialFailed, Reason, one_line


def test_every_reason_has_a_verdict_with_a_code_of_its_own() -> None:
    assert set(VERDICTS) == set(Reason)
    assert len({verdict.code for verdict in VERDICTS.values()}) == len(Reason)


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.value)
def test_a_verdict_is_within_what_the_protocols_know(reason: Reason) -> None:
    verdict = VERDICTS[reason]
    assert 1 <= verdict.socks_reply <= 8  # RFC 1928 section 6
    assert verdict.http_status in (403, 502, 503, 504)
    assert verdict.code in (TESTS.parent / "docs" / "errors.md").read_text()


def test_socks_and_http_tell_the_causes_apart_that_they_can() -> None:
    """The endpoint's own refusal is 5, a missing route 3, a silent host 6: never the other way round."""
    replies = {reason: VERDICTS[reason].socks_reply for reason in (Reason.REFUSED, Reason.UNREACHABLE, Reason.TIMEOUT)}
    assert replies == {Reason.REFUSED: 5, Reason.UNREACHABLE: 3, Reason.TIMEOUT: 6}
    assert VERDICTS[Reason.TIMEOUT].http_status == 504


def test_a_failure_is_told_in_one_line_and_in_three() -> None:
    failure = DialFailed(Reason.REFUSED, "10.0.0.1:443", "dial tcp 10.0.0.1:443: connect: connection refused")
    assert failure.brief == (
        "UMB501 the endpoint refused the connection: 10.0.0.1:443: dial tcp 10.0.0.1:443: connect: connection refused"
    )
    assert failure.told == (
        "UMB501 the endpoint refused the connection\n"
        "  why: 10.0.0.1:443: dial tcp 10.0.0.1:443: connect: connection refused\n"
        "  next: does its pod run, and listen on this port?\n"
    )
    assert failure.verdict is VERDICTS[Reason.REFUSED]


def test_what_another_side_says_is_one_line_without_commands_for_a_terminal_and_not_endless() -> None:
    """An agent's words on a dial are its own, and end in logs and on screens."""
    failure = DialFailed(Reason.UNREACHABLE, "10.0.0.1:443", "oops\r\nINFO all is well\x1b[2J\x00 \u202e" + "x" * 9999)
    assert failure.text.startswith("oops INFO all is well [2J xxx")
    assert len(failure.text) <= MAX_TEXT
    assert failure.text.isprintable()
    assert str(failure) == f"10.0.0.1:443: {failure.text}"


def test_others_words_stay_in_one_line() -> None:
    assert one_line("a\r\nb\t c\x1b[31m\x00") == "a b c [31m"
