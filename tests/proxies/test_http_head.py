"""Heads of requests: what is read, what is refused, and that no cut of the bytes makes a difference."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.proxies.http_head import BadRequest, HeadLimits, HeadReader, RequestHead

LIMITS = HeadLimits()
GOOD = b"GET http://a/x?y HTTP/1.1\r\nHost: a\r\nX-One:  1 \t\r\nx-two:\r\n\r\n"


def read(data: bytes, limits: HeadLimits = LIMITS) -> RequestHead | None:
    return HeadReader(limits).feed(data)


def read_bytewise(data: bytes, limits: HeadLimits = LIMITS) -> RequestHead | None:
    reader = HeadReader(limits)
    for index in range(len(data)):
        if (head := reader.feed(data[index : index + 1])) is not None:
            return head
    return None


def refused_status(data: bytes, limits: HeadLimits = LIMITS) -> int:
    with pytest.raises(BadRequest) as refusal:
        read(data, limits)
    return refusal.value.status


def test_a_head_is_read_and_values_lose_only_the_whitespace_around_them() -> None:
    head = read(GOOD)
    assert head is not None
    assert (head.method, head.target, head.is_http10) == ("GET", "http://a/x?y", False)
    assert head.fields == ((b"Host", b"a"), (b"X-One", b"1"), (b"x-two", b""))


def test_one_byte_at_a_time_gives_the_same_head() -> None:
    assert read_bytewise(GOOD) == read(GOOD)


def test_what_comes_behind_a_head_is_kept() -> None:
    reader = HeadReader(LIMITS)
    assert reader.feed(GOOD + b"more\n\0") is not None
    assert reader.rest == b"more\n\0"


def test_two_empty_lines_before_a_request_are_passed_over_and_a_third_is_not() -> None:
    assert read_bytewise(b"\r\n\r\n" + GOOD) == read(GOOD)
    assert refused_status(b"\r\n\r\n\r\n" + GOOD) == 400


def test_a_newer_minor_version_is_read_as_ours() -> None:
    head = read(b"GET http://a/ HTTP/1.7\r\nHost: a\r\n\r\n")
    assert head is not None
    assert not head.is_http10


def test_http10_and_connect_need_no_host() -> None:
    assert read(b"GET http://a/ HTTP/1.0\r\n\r\n") is not None
    assert read(b"CONNECT a:1 HTTP/1.1\r\n\r\n") is not None


def test_lists_are_read_across_fields_and_without_their_case() -> None:
    head = read(b"GET http://a/ HTTP/1.1\r\nHost: a\r\nConnection: A , ,b\r\nconnection:\tC\r\n\r\n")
    assert head is not None
    assert head.options(b"connection") == [b"a", b"b", b"c"]


REFUSED = {
    "bare LF ends a line": (b"GET http://a/ HTTP/1.1\nHost: a\r\n\r\n", 400),
    "bare LF ends the head": (b"GET http://a/ HTTP/1.1\r\nHost: a\n\n", 400),
    "bare CR in a value": (b"GET http://a/ HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400),
    "CR before CRLF": (b"GET http://a/ HTTP/1.1\r\nHost: a\r\r\n\r\n", 400),
    "NUL in a value": (b"GET http://a/ HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400),
    "another control character in a value": (b"GET http://a/ HTTP/1.1\r\nHost: a\r\nX: a\x01b\r\n\r\n", 400),
    "DEL in a value": (b"GET http://a/ HTTP/1.1\r\nHost: a\r\nX: a\x7fb\r\n\r\n", 400),
    "control character in a name": (b"GET http://a/ HTTP/1.1\r\nHost: a\r\nX\x0b: b\r\n\r\n", 400),
    "space before the colon": (b"GET http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\n", 400),
    "tab before the colon": (b"GET http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length\t: 5\r\n\r\n", 400),
    "folded line": (b"GET http://a/ HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", 400),
    "line folded by a tab": (b"GET http://a/ HTTP/1.1\r\nHost: a\r\nX: a\r\n\tb\r\n\r\n", 400),
    "space before the first field": (b"GET http://a/ HTTP/1.1\r\n Host: a\r\n\r\n", 400),
    "no colon": (b"GET http://a/ HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400),
    "no name": (b"GET http://a/ HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n", 400),
    "name with a letter beyond ASCII": (b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\xc3\xa4: x\r\n\r\n", 400),
    "two spaces in the request line": (b"GET  http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "tab in the request line": (b"GET\thttp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "space behind the version": (b"GET http://a/ HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
    "space in the target": (b"GET http://a/ b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "target beyond ASCII": (b"GET http://a/\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "control character in the target": (b"GET http://a/\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "method with a slash": (b"G/T http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "no version": (b"GET http://a/\r\nHost: a\r\n\r\n", 400),
    "version in lower case": (b"GET http://a/ http/1.1\r\nHost: a\r\n\r\n", 400),
    "version with two digits": (b"GET http://a/ HTTP/1.10\r\nHost: a\r\n\r\n", 400),
    "HTTP/0.9": (b"GET http://a/ HTTP/0.9\r\nHost: a\r\n\r\n", 505),
    "HTTP/2 without negotiation": (b"PRI * HTTP/2.0\r\n\r\n", 505),
    "no Host": (b"GET http://a/ HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (b"GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01", 400),
    "SOCKS5": (b"\x05\x01\x00", 400),
}


@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED)
def test_a_head_with_two_meanings_or_none_is_refused(data: bytes, status: int) -> None:
    assert refused_status(data) == status


@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_one_byte_at_a_time_too(data: bytes, status: int) -> None:
    with pytest.raises(BadRequest) as refusal:
        read_bytewise(data)
    assert refusal.value.status == status


def test_a_client_that_ends_lines_with_lf_alone_is_told_at_once() -> None:
    """It would wait for the answer and we for the rest."""
    with pytest.raises(BadRequest):
        read(b"GET http://a/ HTTP/1.1\n")


def test_limits_hold_while_a_head_is_still_coming() -> None:
    limits = HeadLimits(head_bytes=100, line_bytes=40, fields=3)
    assert refused_status(b"GET http://a/" + b"x" * 40, limits) == 414
    assert refused_status(b"GET http://a/ HTTP/1.1\r\nX: " + b"x" * 100, limits) == 431
    fields = b"".join(b"X%d:\r\n" % number for number in range(3))
    assert refused_status(b"GET http://a/ HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n", limits) == 431


def test_limits_hold_for_a_head_that_comes_at_once() -> None:
    limits = HeadLimits(head_bytes=100, line_bytes=40)
    assert refused_status(b"GET http://a/" + b"x" * 40 + b" HTTP/1.1\r\nHost: a\r\n\r\n", limits) == 414
    assert refused_status(b"GET http://a/ HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100 + b"\r\n\r\n", limits) == 431


def test_what_follows_a_head_does_not_count_as_its_length() -> None:
    limits = HeadLimits(head_bytes=60, line_bytes=40)
    assert read(b"POST http://a/ HTTP/1.1\r\nHost: a\r\n\r\n" + b"x" * 1000, limits) is not None


_PIECES = st.sampled_from(
    [
        b"GET",
        b" ",
        b"http://a/",
        b"HTTP/1.1",
        b"HTTP/1.0",
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b"Host: a",
        b":",
        b"X: y",
        b"\t",
    ]
)


@given(st.lists(_PIECES | st.binary(max_size=4), max_size=20).map(b"".join), st.integers(1, 7))
def test_any_bytes_are_read_or_refused_and_never_by_how_they_were_cut(data: bytes, step: int) -> None:
    def outcome(pieces: list[bytes]) -> object:
        reader = HeadReader(LIMITS)
        try:
            for piece in pieces:
                if (head := reader.feed(piece)) is not None:
                    return head
        except BadRequest as refusal:
            return refusal.status
        return None

    whole = outcome([data])
    parts = outcome([data[at : at + step] for at in range(0, len(data), step)])
    # In pieces an earlier fault may be met first; a head or no head is never a matter of pieces.
    assert isinstance(whole, int) == isinstance(parts, int)
    if not isinstance(whole, int):
        assert whole == parts
