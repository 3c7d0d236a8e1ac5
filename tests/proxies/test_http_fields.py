"""Fields that pass and fields that end at a proxy."""

import pytest

from umbilical.proxies.http_body import SizedBody, body_of
from umbilical.proxies.http_fields import (
    VIA,
    end_to_end,
    forwards_left,
    request_fields,
    response_fields,
    trailer_fields,
)
from umbilical.proxies.http_head import BadRequest, Field, HeadLimits, RequestHead
from umbilical.proxies.http_target import absolute_target


def head(*fields: Field, method: str = "GET", is_http10: bool = False) -> RequestHead:
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


def test_host_is_the_targets_whatever_the_client_said() -> None:
    assert sent(head((b"Host", b"evil.example"), (b"X", b"1"))) == [(b"Host", b"a.example:81"), (b"X", b"1"), VIA]


def test_connection_cannot_take_framing_or_host_away() -> None:
    fields = sent(head((b"Content-Length", b"3"), (b"Connection", b"content-length, host"), method="POST"))
    assert fields == [(b"Host", b"a.example:81"), (b"Content-Length", b"3"), VIA]


def test_framing_is_said_anew() -> None:
    assert (b"Transfer-Encoding", b"chunked") in sent(head((b"transfer-encoding", b"CHUNKED"), method="POST"))
    assert (b"Content-Length", b"0") in sent(head((b"content-length", b"0"), method="POST"))
    assert not [name for name, _ in sent(head(method="POST")) if name == b"Content-Length"]


def test_an_upgrade_passes_if_it_was_asked_for_in_full() -> None:
    fields = sent(head((b"Connection", b"keep-alive, Upgrade"), (b"Upgrade", b"websocket")))
    assert fields[1:] == [(b"Upgrade", b"websocket"), (b"Connection", b"upgrade"), VIA]
    assert sent(head((b"Upgrade", b"websocket")))[1:] == [VIA]
    old = head((b"Connection", b"Upgrade"), (b"Upgrade", b"websocket"), is_http10=True)
    assert sent(old)[1:] == [VIA]


def test_trailers_are_asked_for_if_the_client_takes_them() -> None:
    fields = sent(head((b"TE", b"trailers, deflate;q=0.5"), (b"Connection", b"TE")))
    assert fields[1:] == [(b"TE", b"trailers"), (b"Connection", b"TE"), VIA]


def test_via_is_added_behind_those_that_are_there() -> None:
    assert sent(head((b"Via", b"1.0 other")))[1:] == [(b"Via", b"1.0 other"), VIA]


def test_an_expectation_in_http10_is_ignored() -> None:
    assert (b"Expect", b"100-continue") in sent(head((b"Expect", b"100-continue"), (b"Content-Length", b"1")))
    old = head((b"Expect", b"100-continue"), (b"Content-Length", b"1"), is_http10=True)
    assert not [name for name, _ in sent(old) if name == b"Expect"]


def test_max_forwards_is_counted_for_trace_and_options_alone() -> None:
    assert (b"Max-Forwards", b"4") in sent(head((b"Max-Forwards", b"5"), method="OPTIONS"))
    assert (b"Max-Forwards", b"5") in sent(head((b"Max-Forwards", b"5")))
    assert forwards_left(head((b"Max-Forwards", b"0"), method="TRACE")) == 0
    assert forwards_left(head(method="TRACE")) is None
    with pytest.raises(BadRequest):
        forwards_left(head((b"Max-Forwards", b"x"), method="TRACE"))


def test_an_answers_length_is_not_copied_and_its_upgrade_only_where_it_is_meant() -> None:
    fields = [(b"Content-Length", b"3"), (b"Upgrade", b"h2"), (b"Connection", b"upgrade"), (b"Set-Cookie", b"a")]
    assert response_fields(fields) == [(b"Set-Cookie", b"a"), VIA]
    upgraded = response_fields(fields, [b"h2"])
    assert upgraded == [(b"Set-Cookie", b"a"), VIA, (b"Upgrade", b"h2"), (b"Connection", b"upgrade")]


def test_trailers_cannot_say_what_heads_say() -> None:
    fields = [(b"Content-Length", b"3"), (b"transfer-encoding", b"chunked"), (b"Host", b"b"), (b"X-Sum", b"1")]
    assert trailer_fields(fields) == [(b"X-Sum", b"1")]


def test_a_length_of_nothing_is_not_invented() -> None:
    request = head(method="GET")
    fields = request_fields(request, absolute_target("GET", request.target), SizedBody(0))
    assert [name for name, _ in fields] == [b"Host", b"Via"]
