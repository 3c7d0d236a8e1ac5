"""What a proxy writes to its clients: heads, chunks, and its own responses with what, why and next."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from umbilical.dialer.failure import DialFailed, one_line
from umbilical.proxies.http_head import BadRequest, Field
from umbilical.record import Record

ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n"
_CODES: Final = {408: "UMB542", 414: "UMB541", 431: "UMB541", 501: "UMB543", 505: "UMB543"}
_REMEDIES: Final = {
    "UMB540": "correct the client; behind another proxy, check what that proxy sends",
    "UMB541": "send fewer or shorter headers",
    "UMB542": "send all headers at once",
    "UMB543": "use HTTP/1.1, and no transfer coding except chunked",
}


class ProxyAnswer(Record):
    """A response of the proxy itself: three lines in a text body."""

    status: int
    code: str
    """Of docs/errors.md."""
    what: str
    why: str
    remedy: str

    def render(self, method: str = "GET") -> bytes:
        """Return head and body; for HEAD the head only. The connection is closed after it."""
        body = f"{self.code} {self.what}\n  why: {self.why}\n  next: {self.remedy}\n".encode("utf-8", "replace")
        fields = [
            (b"Content-Type", b"text/plain; charset=utf-8"),
            (b"Content-Length", b"%d" % len(body)),
            (b"Cache-Control", b"no-store"),
            (b"Connection", b"close"),
        ]
        head = response_head(self.status, b"", fields)
        return head if method == "HEAD" else head + body


class RequestRefused(Exception):
    """A request that the proxy itself answers; `result` is its metric label."""

    def __init__(self, answer: ProxyAnswer, result: str) -> None:
        super().__init__(f"{answer.code} {answer.what}: {answer.why}")
        self.answer: Final = answer
        self.result: Final = result


def malformed(request: BadRequest) -> RequestRefused:
    code = _CODES.get(request.status, "UMB540")
    answer = ProxyAnswer(request.status, code, "the proxy refused the request", request.why, _REMEDIES[code])
    return RequestRefused(answer, "unsupported" if code == "UMB543" else "bad-request")


def undialled(address: str, failure: DialFailed) -> RequestRefused:
    report = failure.report
    what = f"no connection to {address}: {report.words}"
    answer = ProxyAnswer(report.http_status, report.code, what, one_line(str(failure)), report.remedy)
    return RequestRefused(answer, failure.reason.value)


def response_head(status: int, reason: bytes, fields: Iterable[Field]) -> bytes:
    lines = [b"HTTP/1.1 %d %s" % (status, reason or _phrase(status)), *(b"%s: %s" % field for field in fields)]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def chunk(data: bytes) -> list[bytes]:
    return [b"%x\r\n" % len(data), data, b"\r\n"]


def last_chunk(trailers: Iterable[Field]) -> bytes:
    return LAST_CHUNK + b"".join(b"%s: %s\r\n" % field for field in trailers) + b"\r\n"


def _phrase(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode("ascii")
    except ValueError:
        return b""
