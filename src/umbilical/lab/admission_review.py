"""Call a webhook with an AdmissionReview v1 over TLS, as kube-apiserver does, with kube-apiserver's messages.

The caller provides the function that opens the connection.
"""

import json
import socket
import ssl
import statistics
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import h11

from umbilical.lab.transcript import CallResult
from umbilical.tunnel.tls import is_truncation

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
# Kinds whose plural is not the lower-case kind with an s.
_IRREGULAR_PLURALS: Final = {"Endpoints": "endpoints", "Ingress": "ingresses", "NetworkPolicy": "networkpolicies"}


class AnswerRefused(Exception):
    """kube-apiserver would not accept this answer of the webhook."""


def review_of(value: Mapping[str, Any], uid: str) -> dict[str, Any]:
    """Return an AdmissionReview that asks to create this object."""
    group, _, version = str(value.get("apiVersion", "v1")).rpartition("/")
    kind = str(value.get("kind", ""))
    metadata = value.get("metadata") or {}
    resource = {"group": group, "version": version, "resource": (_IRREGULAR_PLURALS.get(kind) or f"{kind.lower()}s")}
    kind_of = {"group": group, "version": version, "kind": kind}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "request": {
            "uid": uid,
            "kind": kind_of,
            "resource": resource,
            "requestKind": kind_of,
            "requestResource": resource,
            "name": metadata.get("name", ""),
            "namespace": metadata.get("namespace", ""),
            "operation": "CREATE",
            "userInfo": {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]},
            "object": dict(value),
            "oldObject": None,
            "dryRun": False,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        },
    }


def verdict_of(body: bytes, uid: str) -> tuple[bool, str]:
    """Return whether the webhook allows the object, and its message. Raises AnswerRefused: not a valid answer."""
    response = _response(body)
    if response.get("uid") != uid:
        raise AnswerRefused(f"expected response.uid={json.dumps(uid)}, got {json.dumps(response.get('uid'))}")
    allowed = response.get("allowed")
    if not isinstance(allowed, bool):
        raise AnswerRefused("response.allowed is not a boolean")
    status = response.get("status")
    message = status.get("message") if isinstance(status, dict) else None
    return allowed, message if isinstance(message, str) else ""


def _response(body: bytes) -> dict[str, Any]:
    try:
        review = json.loads(body)
    except (ValueError, RecursionError):
        raise AnswerRefused("invalid character in the answer: it is not JSON") from None
    if not isinstance(review, dict) or (review.get("apiVersion"), review.get("kind")) != (API_VERSION, KIND):
        raise AnswerRefused(f"expected webhook response of {API_VERSION}, Kind={KIND}")
    response = review.get("response")
    if not isinstance(response, dict):
        raise AnswerRefused("webhook response was absent")
    return response


STANDS_IN_FOR: Final = "kube-apiserver"
MAX_ANSWER_BYTES: Final = 3 << 20
"""kube-apiserver's limit for a request body, used for answers too."""
CHUNK_BYTES: Final = 64 * 1024
_HOSTNAME_MISMATCH: Final = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21, 27)
"""OpenSSL's errors for a chain without a trusted CA."""
_OUTSIDE_VALIDITY: Final = (9, 10)
_OK: Final = 200
_NOT_FOUND: Final = 404


class Unreachable(Exception):
    """No answer came; `str()` is what kube-apiserver prints after the URL."""


@dataclass(frozen=True)
class Webhook:
    """Fields of a ValidatingWebhookConfiguration, and the endpoint of its Service."""

    name: str
    service: str
    namespace: str
    path: str
    address: str
    """HOST:PORT of the pod. kube-apiserver with --enable-aggregator-routing dials endpoints, not ClusterIPs."""
    port: int = 443
    """Port of the Service, only for the URL in messages."""
    timeout_seconds: float = 5.0

    @property
    def server_name(self) -> str:
        return f"{self.service}.{self.namespace}.svc"

    @property
    def url(self) -> str:
        return f"https://{self.server_name}:{self.port}{self.path}?timeout={self.timeout_seconds:g}s"


@dataclass(frozen=True)
class AdmissionVerdict:
    call: CallResult
    message: str
    seconds: float


Dial = Callable[[str, float], socket.socket]
"""Opens a connection to HOST:PORT with a timeout in seconds. Raises Unreachable or TimeoutError."""


def review(webhook: Webhook, context: ssl.SSLContext, value: Mapping[str, Any], dial: Dial) -> AdmissionVerdict:
    """Call the webhook once, on a new connection."""
    started = time.monotonic()
    uid = str(uuid.uuid4())
    try:
        allowed, words = verdict_of(_exchange(webhook, context, review_of(value, uid), dial), uid)
    except (Unreachable, AnswerRefused, OSError, h11.RemoteProtocolError) as fault:
        return AdmissionVerdict(CallResult.UNREACHABLE, _failure(webhook, fault), time.monotonic() - started)
    call = CallResult.ALLOWED if allowed else CallResult.DENIED
    message = words if allowed else _denial(webhook, words)
    return AdmissionVerdict(call, message, time.monotonic() - started)


def summary(verdicts: list[AdmissionVerdict]) -> dict[str, Any]:
    """Return what the program prints: the last verdict, and totals of all calls."""
    last, seconds = verdicts[-1], [round(verdict.seconds, 6) for verdict in verdicts]
    tally = {
        call.value: sum(verdict.call is call for verdict in verdicts)
        for call in CallResult
        if call is not CallResult.NONE
    }
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
    end = time.monotonic() + webhook.timeout_seconds
    with dial(webhook.address, webhook.timeout_seconds) as below:
        below.settimeout(_left(end))
        with context.wrap_socket(below, server_hostname=webhook.server_name) as stream:
            return _post(stream, end, webhook, json.dumps(review, separators=(",", ":")).encode())


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _post(stream: ssl.SSLSocket, end: float, webhook: Webhook, body: bytes) -> bytes:
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
        stream.settimeout(_left(end))
        stream.sendall(http.send(event) or b"")
    return _read_answer(stream, end, http)


def _read_answer(stream: ssl.SSLSocket, end: float, http: h11.Connection) -> bytes:
    status, body = 0, bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            stream.settimeout(_left(end))
            http.receive_data(stream.recv(CHUNK_BYTES))
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
    elif isinstance(fault, ssl.SSLError):
        words = _go_words(fault, webhook.server_name)
    elif isinstance(fault, h11.RemoteProtocolError | ConnectionError):
        words = "EOF"
    else:
        words = str(fault)
    return f"{head}failed to call webhook: Post {json.dumps(webhook.url)}: {words}"


def _denial(webhook: Webhook, words: str) -> str:
    said = f"denied the request: {words}" if words else "denied the request without explanation"
    return f"admission webhook {json.dumps(webhook.name)} {said}"


def _go_words(error: ssl.SSLError, server_name: str) -> str:
    if not isinstance(error, ssl.SSLCertVerificationError):
        return "EOF" if is_truncation(error) else f"tls: {error.reason or error}"
    if error.verify_code in _UNKNOWN_AUTHORITY:
        why = "certificate signed by unknown authority"
    elif error.verify_code in _HOSTNAME_MISMATCH:
        why = f"certificate is not valid for {server_name}"
    elif error.verify_code in _OUTSIDE_VALIDITY:
        why = "certificate has expired or is not yet valid"
    else:
        why = error.verify_message
    return f"tls: failed to verify certificate: x509: {why}"
