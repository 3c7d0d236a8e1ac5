"""Bodies of requests: where they end, and the shapes of which two readers would disagree."""

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.proxies.http_body import Body, ChunkedBody, SizedBody, body_of
from umbilical.proxies.http_head import BadRequest, Field, HeadLimits, RequestHead

LIMITS = HeadLimits()
CHUNKED = b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX-Sum: 11\r\n\r\n"


def head(*fields: Field, is_http10: bool = False) -> RequestHead:
    return RequestHead("POST", "http://a/", is_http10, fields)


def refused_status(*fields: Field, is_http10: bool = False) -> int:
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
    "chunked in one field, identity in another": (
        [(b"Transfer-Encoding", b"chunked"), (b"Transfer-Encoding", b"identity")],
        400,
    ),
    "xchunked": ([(b"Transfer-Encoding", b"xchunked")], 400),
    "chunked with a vertical tab": ([(b"Transfer-Encoding", b"\x0bchunked")], 400),
    "quoted": ([(b"Transfer-Encoding", b'"chunked"')], 400),
    "with a parameter": ([(b"Transfer-Encoding", b"chunked;q=1")], 400),
    "empty coding": ([(b"Transfer-Encoding", b"")], 400),
    "gzip and chunked": ([(b"Transfer-Encoding", b"gzip, chunked")], 501),
}


@pytest.mark.parametrize(("fields", "status"), FRAMINGS.values(), ids=FRAMINGS)
def test_a_framing_with_a_doubt_is_refused(fields: list[Field], status: int) -> None:
    assert refused_status(*fields) == status


def test_chunks_in_http10_are_refused() -> None:
    assert refused_status((b"Transfer-Encoding", b"chunked"), is_http10=True) == 400


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
