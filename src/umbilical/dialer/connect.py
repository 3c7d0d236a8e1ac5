"""CONNECT to a server in mode http-connect, over streams to it.

The head is read line by line, so that the endpoint's first bytes stay in the reader.
"""

import asyncio
import re
import ssl
import time
from typing import Final

from umbilical.dialer.failure import DialFailed, DialReason, reason_of_reply
from umbilical.dialer.streams import Streams
from umbilical.dialer.trace import Trace, add_hop
from umbilical.tunnel.time_limit import time_limit
from umbilical.tunnel.tls import is_truncation, tls_reason
from umbilical.wire import http1
from umbilical.wire.errors import ProtocolViolation

MAX_REPLY_HEAD_BYTES: Final = 64 * 1024
MAX_BODY_BYTES: Final = 16 * 1024
BODY_SECONDS: Final = 5.0
"""Timeout for the body of a refusal, after its head; what has arrived by then is shown."""
TRACE_HEADER: Final = ("Umbilical-Trace", "1")
AGENT_HEADER: Final = "umbilical-agent"
SECONDS_HEADER: Final = "umbilical-dial-seconds"

ENDPOINTS_OWN: Final = frozenset({DialReason.REFUSED, DialReason.UNREACHABLE, DialReason.TIMEOUT, DialReason.NAME})
"""Reasons caused by the endpoint or its name; all others occur between client and agent."""

_HOST: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:%-]+")


class ServerReply:
    def __init__(self, head: bytes, parsed: http1.ConnectReply) -> None:
        self.status: Final = parsed.status
        self.status_line: Final = f"{parsed.status} {parsed.reason}".strip()
        self.headers: Final = _headers(head)


def authority_of(host: str, port: int) -> str:
    """Return `host:port` for a request line. Raises DialFailed for an invalid host name."""
    if not 0 <= port <= 65535:
        raise ValueError(f"port {port} is not within 0 to 65535")
    try:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise DialFailed(DialReason.NAME, repr(host), f"not a host name: {error}") from None
    if not _HOST.fullmatch(name):
        raise DialFailed(DialReason.NAME, repr(host), "not a host name")
    if ":" in name:
        return f"[{name.replace('%', '%25')}]:{port}"  # RFC 6874: how a zone is written
    return f"{name}:{port}"


async def connect(streams: Streams, server: str, endpoint: str, seconds: float, trace: Trace | None) -> None:
    """Return when the streams lead to the endpoint. Raises DialFailed; the caller then closes the streams."""
    reader, writer = streams
    started = time.monotonic()
    try:
        with time_limit(seconds):
            writer.write(http1.format_connect_request(endpoint, () if trace is None else (TRACE_HEADER,)))
            reply = await read_reply(reader)
    except TimeoutError:
        text = f"neither the server nor its agent answered the dial within {seconds:g} s"
        failure = DialFailed(DialReason.SERVER, server, text)
        add_hop(trace, "dial", started, endpoint, failure.text)
        raise failure from None
    except (OSError, EOFError, ProtocolViolation) as error:
        failure = broken(error, server)
        add_hop(trace, "dial", started, endpoint, failure.text)
        raise failure from None
    if reply.status != 200:
        failure = await _refused(reader, reply, server, endpoint)
        _trace_reply(trace, started, endpoint, reply, failure.text)
        raise failure
    _trace_reply(trace, started, endpoint, reply, "")


async def read_reply(reader: asyncio.StreamReader) -> ServerReply:
    """Raises EOFError, ProtocolViolation, OSError."""
    head = b""
    parsed: http1.ConnectReply | None = None
    while parsed is None:
        line = await _line(reader)
        is_first, head = not head, head + line
        if not line.endswith(b"\n"):
            _check_beginning(head)
            raise EOFError("the server closed the connection without a reply")
        if len(head) > MAX_REPLY_HEAD_BYTES:
            raise ProtocolViolation(502, f"the reply's head is longer than {MAX_REPLY_HEAD_BYTES} bytes")
        if is_first or line in (b"\r\n", b"\n"):
            parsed = http1.parse_connect_reply(head)
    return ServerReply(head, parsed)


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:  # longer than the reader's limit
        raise ProtocolViolation(502, "a line of the reply's head has no end") from None


def _check_beginning(head: bytes) -> None:
    if head and not head.startswith(b"HTTP/1."[: len(head)]):
        raise ProtocolViolation(502, f"not an HTTP/1.1 reply: {head[:40]!r}")


def _headers(head: bytes) -> dict[str, str]:
    """Return headers by lower-case name; the first of a name counts."""
    headers: dict[str, str] = {}
    for line in head.splitlines()[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            headers.setdefault(name.decode("ascii", "replace").lower(), value.strip().decode("utf-8", "replace"))
    return headers


def broken(error: Exception, server: str) -> DialFailed:
    """Return the failure for an error between the handshake and the server's answer."""
    if isinstance(error, ProtocolViolation):
        return DialFailed(DialReason.PROTOCOL, server, error.message)
    if isinstance(error, ssl.SSLError) and not is_truncation(error):
        # With TLS 1.3 the server refuses a client certificate only after the handshake.
        return DialFailed(DialReason.TLS, server, tls_reason(error))
    return DialFailed(DialReason.SERVER, server, f"connection lost during the dial: {error}")


async def _refused(reader: asyncio.StreamReader, reply: ServerReply, server: str, endpoint: str) -> DialFailed:
    text = await refusal_text(reader, reply)
    reason = reason_of_reply(reply.status, text)
    hop = endpoint if reason in ENDPOINTS_OWN else server
    return DialFailed(reason, hop, text or reply.status_line, reply.status_line)


async def refusal_text(reader: asyncio.StreamReader, reply: ServerReply, most: int = MAX_BODY_BYTES) -> str:
    """Return the body of an error reply on one line: at most `most` bytes, or what arrives in time."""
    length = reply.headers.get("content-length", "")
    is_number = length.isascii() and length.isdigit() and len(length) <= 9
    size = min(int(length), most) if is_number else most
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while len(body) < size and (octets := await reader.read(size - len(body))):
                body += octets
    except (TimeoutError, OSError):
        pass  # a part of the text is better than none
    return " ".join(word for word in body.decode("utf-8", "replace").split() if word.isprintable())


def _trace_reply(trace: Trace | None, started: float, endpoint: str, reply: ServerReply, failure: str) -> None:
    if trace is None:
        return
    whole = time.monotonic() - started
    dial = _seconds(reply.headers.get(SECONDS_HEADER, ""))
    agent = reply.headers.get(AGENT_HEADER, "")
    if agent:
        trace.add("agent", max(whole - dial, 0.0) if dial is not None else 0.0, agent)
    seconds = whole if dial is None else min(dial, whole)
    trace.add("dial", seconds, endpoint, failure)


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < 1e9 else None
