"""What a proxy says itself."""

import h11
import pytest

from umbilical.dialer.failure import VERDICTS, DialFailed, Reason
from umbilical.proxies.http_head import BadRequest
from umbilical.proxies.http_reply import (
    ESTABLISHED,
    Answer,
    chunk,
    last_chunk,
    malformed,
    response_head,
    undialled,
)

ANSWER = Answer(502, "UMB501", "no connection to a:1", "refused", "look")


def parsed(raw: bytes, method: str = "GET") -> tuple[h11.Response, bytes]:
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
    reader.send(h11.EndOfMessage())
    reader.receive_data(raw)
    head = reader.next_event()
    assert isinstance(head, h11.Response)
    event = reader.next_event()
    return head, bytes(event.data) if isinstance(event, h11.Data) else b""


def test_an_answer_is_three_lines_of_text_that_nobody_stores() -> None:
    head, body = parsed(ANSWER.render())
    assert head.status_code == 502
    assert body == b"UMB501 no connection to a:1\n  why: refused\n  next: look\n"
    assert dict(head.headers)[b"content-type"] == b"text/plain; charset=utf-8"
    assert dict(head.headers)[b"connection"] == b"close"
    assert dict(head.headers)[b"cache-control"] == b"no-store"


def test_head_is_told_the_length_and_no_body() -> None:
    raw = ANSWER.render("HEAD")
    assert raw.endswith(b"\r\n\r\n")
    head, body = parsed(raw, "HEAD")
    assert (dict(head.headers)[b"content-length"], body) == (b"56", b"")


@pytest.mark.parametrize("reason", list(Reason))
def test_a_failed_dial_is_told_by_its_cause_and_never_as_our_own_fault(reason: Reason) -> None:
    refused = undialled("a:1", DialFailed(reason, "server s", "said\r\nSet-Cookie: x"))
    verdict = VERDICTS[reason]
    assert (refused.answer.status, refused.answer.code) == (verdict.http_status, verdict.code)
    assert refused.answer.status in (403, 502, 503, 504)
    assert refused.answer.why == "server s: said Set-Cookie: x"
    assert refused.result == reason.value


@pytest.mark.parametrize(
    ("status", "code", "result"),
    [
        (400, "UMB540", "bad-request"),
        (408, "UMB542", "bad-request"),
        (414, "UMB541", "bad-request"),
        (431, "UMB541", "bad-request"),
        (501, "UMB543", "unsupported"),
        (505, "UMB543", "unsupported"),
    ],
)
def test_a_bad_request_is_told_by_its_status(status: int, code: str, result: str) -> None:
    refused = malformed(BadRequest(status, "why"))
    assert (refused.answer.status, refused.answer.code, refused.result) == (status, code, result)


def test_heads_and_chunks_are_what_h11_reads() -> None:
    head = response_head(299, b"", [(b"Transfer-Encoding", b"chunked")])
    raw = head + b"".join(chunk(b"x" * 300)) + last_chunk([(b"X-Sum", b"1")])
    assert raw.startswith(b"HTTP/1.1 299 \r\n")
    assert parsed(raw)[1] == b"x" * 300


def test_a_tunnel_is_established_in_http11() -> None:
    assert ESTABLISHED == b"HTTP/1.1 200 Connection established\r\n\r\n"
