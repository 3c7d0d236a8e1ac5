"""Request heads: accepted, refused, and independent of how the bytes are split."""

from collections.abc import Callable

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.proxies.http_body import Body, ChunkedBody, SizedBody, body_of
from umbilical.proxies.http_exchange import (
    VIA,
    end_to_end,
    forwards_left,
    request_fields,
    response_fields,
    trailer_fields,
)
from umbilical.proxies.http_head import BadRequest, Field, HeadLimits, HeadReader, RequestHead, absolute_target

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


@pytest.mark.parametrize("reading", [read, read_bytewise], ids=["whole", "one byte at a time"])
@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED)
def test_a_head_with_two_meanings_or_none_is_refused(
    data: bytes, status: int, reading: Callable[[bytes], RequestHead | None]
) -> None:
    with pytest.raises(BadRequest) as refusal:
        reading(data)
    assert refusal.value.status == status


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


_PIECES = st.sampled_from([
    b"GET", b" ", b"http://a/", b"HTTP/1.1", b"HTTP/1.0", b"\r\n", b"\n", b"\r", b"\0", b"Host: a", b":", b"X: y",
    b"\t",
])  # fmt: skip


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
    # In pieces another error may be found first, but the result is the same: accepted or refused.
    assert isinstance(whole, int) == isinstance(parts, int)
    if not isinstance(whole, int):
        assert whole == parts


CHUNKED = b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX-Sum: 11\r\n\r\n"


def head(*fields: Field, is_http10: bool = False) -> RequestHead:
    return RequestHead("POST", "http://a/", is_http10, fields)


def refused_status_body(*fields: Field, is_http10: bool = False) -> int:
    with pytest.raises(BadRequest) as refusal:
        body_of(head(*fields, is_http10=is_http10), LIMITS)
    return refusal.value.status


def take(body: Body, data: bytes, step: int) -> bytes:
    return b"".join(piece for at in range(0, len(data), step) for piece in body.feed(data[at : at + step]))


def test_no_framing_is_no_body() -> None:
    body = body_of(head(), LIMITS)
    assert (body.is_over, body.length) == (True, 0)


def test_a_length_is_taken_to_the_byte_and_the_rest_is_given_back() -> None:
    body = body_of(head((b"content-LENGTH", b"5")), LIMITS)
    assert isinstance(body, SizedBody)
    assert body.feed(b"hel") == [b"hel"]
    assert not body.is_over
    assert body.feed(b"loGET") == [b"lo"]
    assert (body.is_over, body.rest) == (True, b"GET")


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_chunks_are_joined_trailers_kept_and_the_rest_given_back(step: int) -> None:
    body = body_of(head((b"Transfer-Encoding", b"Chunked")), LIMITS)
    assert isinstance(body, ChunkedBody)
    assert take(body, CHUNKED, step) == b"hello world"
    assert (body.is_over, body.trailers) == (True, ((b"X-Sum", b"11"),))


def test_what_comes_behind_the_last_chunk_is_the_next_requests() -> None:
    body = ChunkedBody(LIMITS)
    assert b"".join(body.feed(CHUNKED + b"GET http://b/")) == b"hello world"
    assert body.rest == b"GET http://b/"


FRAMINGS: dict[str, tuple[list[Field], int]] = {
    "length and chunks": ([(b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked")], 400),
    "chunks and length": ([(b"Transfer-Encoding", b"chunked"), (b"Content-Length", b"5")], 400),
    "two lengths that differ": ([(b"Content-Length", b"5"), (b"Content-Length", b"6")], 400),
    "two lengths alike": ([(b"Content-Length", b"5"), (b"Content-Length", b"5")], 400),
    "a list of lengths": ([(b"Content-Length", b"5, 5")], 400),
    "plus": ([(b"Content-Length", b"+5")], 400),
    "minus": ([(b"Content-Length", b"-5")], 400),
    "hexadecimal": ([(b"Content-Length", b"0x5")], 400),
    "underscore": ([(b"Content-Length", b"1_0")], 400),
    "empty length": ([(b"Content-Length", b"")], 400),
    "length past 64 bits": ([(b"Content-Length", b"18446744073709551616")], 400),
    "identity": ([(b"Transfer-Encoding", b"identity")], 400),
    "gzip": ([(b"Transfer-Encoding", b"gzip")], 400),
    "chunked is not the last": ([(b"Transfer-Encoding", b"chunked, gzip")], 400),
    "chunked twice": ([(b"Transfer-Encoding", b"chunked"), (b"Transfer-Encoding", b"chunked")], 400),
    "chunked and identity": ([(b"Transfer-Encoding", b"chunked"), (b"Transfer-Encoding", b"identity")], 400),
    "xchunked": ([(b"Transfer-Encoding", b"xchunked")], 400),
    "chunked with a vertical tab": ([(b"Transfer-Encoding", b"\x0bchunked")], 400),
    "quoted": ([(b"Transfer-Encoding", b'"chunked"')], 400),
    "with a parameter": ([(b"Transfer-Encoding", b"chunked;q=1")], 400),
    "empty coding": ([(b"Transfer-Encoding", b"")], 400),
    "gzip and chunked": ([(b"Transfer-Encoding", b"gzip, chunked")], 501),
}


@pytest.mark.parametrize(("fields", "status"), FRAMINGS.values(), ids=FRAMINGS)
def test_a_framing_with_a_doubt_is_refused(fields: list[Field], status: int) -> None:
    assert refused_status_body(*fields) == status


BAD_CHUNKS = {
    "no size": b"\r\nhello",
    "no hexadecimal": b"g\r\n",
    "sign": b"+5\r\nhello\r\n",
    "prefix": b"0x5\r\nhello\r\n",
    "underscore": b"1_0\r\n",
    "space before": b" 5\r\nhello\r\n",
    "space behind": b"5 \r\nhello\r\n",
    "size past 64 bits": b"10000000000000005\r\nhello\r\n",
    "LF alone behind the size": b"5\nhello\r\n",
    "CR alone in an extension": b"5;a\rb\r\nhello\r\n",
    "LF alone in an extension": b"5;a\nb\r\nhello\r\n",
    "NUL in an extension": b"5;a\0\r\nhello\r\n",
    "longer than its size": b"3\r\nhello\r\n",
    "shorter than its size": b"6\r\nhello\r\n0\r\n\r\n",
    "LF alone behind the data": b"5\r\nhello\n0\r\n\r\n",
    "CR alone behind the data": b"5\r\nhello\r0\r\n\r\n",
    "trailer ended by LF": b"0\r\nX: y\n\n",
    "empty line of LF": b"0\r\n\n",
    "folded trailer": b"0\r\nX: y\r\n z\r\n\r\n",
    "trailer without a colon": b"0\r\nGET / HTTP/1.1\r\n\r\n",
    "space in a trailer's name": b"0\r\nX : y\r\n\r\n",
    "an extension without end": b"5;" + b"a" * 5000,
    "trailers without end": b"0\r\n" + b"X: y\r\n" * 200,
    "a trailer without end": b"0\r\nX: " + b"y" * 70_000,
}


@pytest.mark.parametrize("data", BAD_CHUNKS.values(), ids=BAD_CHUNKS)
@pytest.mark.parametrize("step", [1, 100_000])
def test_chunks_that_others_might_read_differently_are_refused(data: bytes, step: int) -> None:
    with pytest.raises(BadRequest) as refusal:
        take(ChunkedBody(LIMITS), data, step)
    assert refusal.value.status in (400, 431)


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=5), st.integers(1, 20))
def test_what_h11_writes_is_read_whatever_the_cut(pieces: list[bytes], step: int) -> None:
    writer = h11.Connection(h11.CLIENT)
    writer.send(h11.Request(method="POST", target="/", headers=[("Host", "a"), ("Transfer-Encoding", "chunked")]))
    written = b"".join(writer.send(h11.Data(data=piece)) for piece in pieces)
    written += writer.send(h11.EndOfMessage(headers=[("X-Sum", "1")]))
    body = ChunkedBody(LIMITS)
    assert take(body, written, step) == b"".join(pieces)
    assert (body.is_over, body.trailers) == (True, ((b"X-Sum", b"1"),))


_NOISE = st.sampled_from([b"0", b"5", b"a", b"\r\n", b"\r", b"\n", b";", b"hello", b"X: y", b" ", b"\0"])


@given(st.lists(_NOISE, max_size=16).map(b"".join), st.integers(1, 5))
def test_any_bytes_are_data_or_refused_and_never_by_how_they_were_cut(data: bytes, step: int) -> None:
    def outcome(step: int) -> object:
        body = ChunkedBody(LIMITS)
        try:
            taken = take(body, data, step)
        except BadRequest:
            return "refused"
        return taken, body.is_over, body.trailers

    assert outcome(step) == outcome(len(data) + 1)


def head_fields(*fields: Field, method: str = "GET", is_http10: bool = False) -> RequestHead:
    return RequestHead(method, "http://a.example:81/x", is_http10, fields)


def sent(request: RequestHead) -> list[Field]:
    target = absolute_target(request.method, request.target)
    return request_fields(request, target, body_of(request, HeadLimits()))


def test_fields_of_one_hop_end_here_and_others_pass_as_they_are() -> None:
    fields = [
        (b"Connection", b"close, X-Secret"),
        (b"Keep-Alive", b"timeout=5"),
        (b"x-secret", b"1"),
        (b"Proxy-Connection", b"keep-alive"),
        (b"Proxy-Authorization", b"Basic eDp5"),
        (b"Proxy-Authenticate", b"Basic"),
        (b"TE", b"gzip"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Upgrade", b"h2c"),
        (b"Accept-Encoding", b"br, gzip"),
        (b"cOOKIE", b"a=b"),
        (b"Trailer", b"X-Sum"),
    ]
    assert end_to_end(fields) == [(b"Accept-Encoding", b"br, gzip"), (b"cOOKIE", b"a=b"), (b"Trailer", b"X-Sum")]


UPGRADE = (b"Upgrade", b"websocket")
SENT: dict[str, tuple[RequestHead, list[Field]]] = {
    "the host is the target's": (head_fields((b"Host", b"evil.example"), (b"X", b"1")), [(b"X", b"1"), VIA]),
    "Connection takes neither framing nor host away": (
        head_fields((b"Content-Length", b"3"), (b"Connection", b"content-length, host"), method="POST"),
        [(b"Content-Length", b"3"), VIA],
    ),
    "chunks are said anew": (
        head_fields((b"transfer-encoding", b"CHUNKED"), method="POST"),
        [(b"Transfer-Encoding", b"chunked"), VIA],
    ),
    "so is a length": (head_fields((b"content-length", b"0"), method="POST"), [(b"Content-Length", b"0"), VIA]),
    "no length is invented": (head_fields(method="POST"), [VIA]),
    "an upgrade that was asked for in full": (
        head_fields((b"Connection", b"keep-alive, Upgrade"), UPGRADE),
        [UPGRADE, (b"Connection", b"upgrade"), VIA],
    ),
    "an upgrade that Connection does not name": (head_fields(UPGRADE), [VIA]),
    "an upgrade of HTTP/1.0": (head_fields((b"Connection", b"Upgrade"), UPGRADE, is_http10=True), [VIA]),
    "trailers if the client takes them": (
        head_fields((b"TE", b"trailers, deflate;q=0.5"), (b"Connection", b"TE")),
        [(b"TE", b"trailers"), (b"Connection", b"TE"), VIA],
    ),
    "Via behind those that are there": (head_fields((b"Via", b"1.0 other")), [(b"Via", b"1.0 other"), VIA]),
}


@pytest.mark.parametrize(("request_head", "fields"), SENT.values(), ids=SENT)
def test_an_endpoint_is_sent_these_fields_behind_its_host(request_head: RequestHead, fields: list[Field]) -> None:
    assert sent(request_head) == [(b"Host", b"a.example:81"), *fields]


def test_an_expectation_in_http10_is_ignored() -> None:
    assert (b"Expect", b"100-continue") in sent(head_fields((b"Expect", b"100-continue"), (b"Content-Length", b"1")))
    old = head_fields((b"Expect", b"100-continue"), (b"Content-Length", b"1"), is_http10=True)
    assert not [name for name, _ in sent(old) if name == b"Expect"]


def test_max_forwards_is_counted_for_trace_and_options_alone() -> None:
    assert (b"Max-Forwards", b"4") in sent(head_fields((b"Max-Forwards", b"5"), method="OPTIONS"))
    assert (b"Max-Forwards", b"5") in sent(head_fields((b"Max-Forwards", b"5")))
    assert forwards_left(head_fields((b"Max-Forwards", b"0"), method="TRACE")) == 0
    assert forwards_left(head_fields(method="TRACE")) is None
    with pytest.raises(BadRequest):
        forwards_left(head_fields((b"Max-Forwards", b"x"), method="TRACE"))


def test_an_answers_length_is_not_copied_and_its_upgrade_only_where_it_is_meant() -> None:
    fields = [(b"Content-Length", b"3"), (b"Upgrade", b"h2"), (b"Connection", b"upgrade"), (b"Set-Cookie", b"a")]
    assert response_fields(fields) == [(b"Set-Cookie", b"a"), VIA]
    upgraded = response_fields(fields, [b"h2"])
    assert upgraded == [(b"Set-Cookie", b"a"), VIA, (b"Upgrade", b"h2"), (b"Connection", b"upgrade")]


def test_trailers_cannot_say_what_heads_say() -> None:
    fields = [(b"Content-Length", b"3"), (b"transfer-encoding", b"chunked"), (b"Host", b"b"), (b"X-Sum", b"1")]
    assert trailer_fields(fields) == [(b"X-Sum", b"1")]
