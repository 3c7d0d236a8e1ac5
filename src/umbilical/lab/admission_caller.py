"""Stands in for kube-apiserver where there is none: asks a webhook for its verdict, and tells in kube-apiserver's
words how that went. How the connection comes about (the tunnel, or directly) is the caller's business.
"""

import json
import ssl
import statistics
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import h11

from umbilical.lab.admission_review import AnswerRefused, review_of, verdict_of
from umbilical.lab.story import Call
from umbilical.lab.tls_stream import Below, TlsRefused, TlsStream

STANDS_IN_FOR: Final = "kube-apiserver"
MAX_ANSWER_BYTES: Final = 3 << 20
"""kube-apiserver's own bound for a request body, which an answer should not pass either."""
_OK: Final = 200
_NOT_FOUND: Final = 404


class Unreachable(Exception):
    """No answer came; `str()` is what kube-apiserver prints behind the URL."""


@dataclass(frozen=True)
class Webhook:
    """What a ValidatingWebhookConfiguration says of it, and the endpoint that stands behind its Service."""

    name: str
    service: str
    namespace: str
    path: str
    address: str
    """HOST:PORT of the pod. kube-apiserver with --enable-aggregator-routing dials endpoints, not ClusterIPs."""
    port: int = 443
    """Of the Service: it stands in the URL and nowhere else."""
    timeout_seconds: float = 5.0

    @property
    def server_name(self) -> str:
        return f"{self.service}.{self.namespace}.svc"

    @property
    def url(self) -> str:
        return f"https://{self.server_name}:{self.port}{self.path}?timeout={self.timeout_seconds:g}s"


@dataclass(frozen=True)
class Verdict:
    call: Call
    message: str
    seconds: float


Dial = Callable[[str, float], Below]
"""Open a connection to HOST:PORT within so many seconds, or raise Unreachable; the deadline covers its whole life."""


def judge(webhook: Webhook, context: ssl.SSLContext, value: Mapping[str, Any], dial: Dial) -> Verdict:
    """Ask once, over a connection of its own."""
    started = time.monotonic()
    uid = str(uuid.uuid4())
    try:
        allowed, words = verdict_of(_exchange(webhook, context, review_of(value, uid), dial), uid)
    except (Unreachable, TlsRefused, AnswerRefused, OSError, h11.RemoteProtocolError) as fault:
        return Verdict(Call.UNREACHABLE, _failure(webhook, fault), time.monotonic() - started)
    call = Call.ALLOWED if allowed else Call.DENIED
    message = words if allowed else _denial(webhook, words)
    return Verdict(call, message, time.monotonic() - started)


def summary(verdicts: list[Verdict]) -> dict[str, Any]:
    """What the program prints: the last verdict, and the figures of them all."""
    last, seconds = verdicts[-1], [round(verdict.seconds, 6) for verdict in verdicts]
    tally = {call.value: sum(verdict.call is call for verdict in verdicts) for call in Call if call is not Call.NONE}
    return {
        "standsInFor": STANDS_IN_FOR,
        "call": last.call.value,
        "message": last.message,
        "seconds": round(last.seconds, 6),
        "calls": tally,
        "callSeconds": seconds,
        "p50Seconds": round(statistics.median(seconds), 6),
    }


def _exchange(webhook: Webhook, context: ssl.SSLContext, review: dict[str, Any], dial: Dial) -> bytes:
    below = dial(webhook.address, webhook.timeout_seconds)
    try:
        stream = TlsStream(below, context, webhook.server_name)
        stream.handshake()
        return _post(stream, webhook, json.dumps(review, separators=(",", ":")).encode())
    finally:
        below.close()


def _post(stream: TlsStream, webhook: Webhook, body: bytes) -> bytes:
    http = h11.Connection(h11.CLIENT)
    request = h11.Request(
        method="POST",
        target=f"{webhook.path}?timeout={webhook.timeout_seconds:g}s",
        headers=[
            ("Host", f"{webhook.server_name}:{webhook.port}"),
            ("Content-Type", "application/json"),
            ("Accept", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ],
    )
    for event in (request, h11.Data(data=body), h11.EndOfMessage()):
        stream.send(http.send(event) or b"")
    return _read_answer(stream, http)


def _read_answer(stream: TlsStream, http: h11.Connection) -> bytes:
    status, body = 0, bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(stream.receive())
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_ANSWER_BYTES:
                raise AnswerRefused(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return _of_status(status, bytes(body))
        elif isinstance(event, h11.ConnectionClosed):
            raise Unreachable("EOF")


def _of_status(status: int, body: bytes) -> bytes:
    if status == _OK:
        return body
    if status == _NOT_FOUND:
        raise AnswerRefused("the server could not find the requested resource")
    words = json.dumps(body[:200].decode("utf-8", "replace"))
    raise AnswerRefused(f"an error on the server ({words}) has prevented the request from succeeding")


def _failure(webhook: Webhook, fault: Exception) -> str:
    head = f"failed calling webhook {json.dumps(webhook.name)}: "
    if isinstance(fault, AnswerRefused):
        return f"{head}failed to call webhook: {fault}"
    if isinstance(fault, TimeoutError):
        words = "context deadline exceeded"
    elif isinstance(fault, h11.RemoteProtocolError | ConnectionError):
        words = "EOF"
    else:
        words = str(fault)
    return f"{head}failed to call webhook: Post {json.dumps(webhook.url)}: {words}"


def _denial(webhook: Webhook, words: str) -> str:
    said = f"denied the request: {words}" if words else "denied the request without explanation"
    return f"admission webhook {json.dumps(webhook.name)} {said}"
