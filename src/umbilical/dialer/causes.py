"""From a server's words on a failed dial to its reason: our own server's texts, upstream's, and Go's inside them.

The wire has no codes for it: http-connect has a status that is chosen by substring, gRPC has text alone.
"""

from typing import Final

from umbilical.dialer.failure import Reason

TEXTS: Final = (
    ("no agent available", Reason.NO_AGENT),
    ("no backend available", Reason.NO_AGENT),
    ("no tunnels available", Reason.NO_AGENT),
    ("failed to tunnel dial request", Reason.AGENT_LOST),
    ("backend context error", Reason.AGENT_LOST),
    ("agent disconnected", Reason.AGENT_LOST),
    ("dial closed", Reason.AGENT_LOST),
    ("too many open files", Reason.AGENT_LOST),
    ("cannot allocate memory", Reason.AGENT_LOST),
    ("no buffer space available", Reason.AGENT_LOST),
    ("lookup ", Reason.NAME),
    ("no such host", Reason.NAME),
    ("no suitable address", Reason.NAME),
    ("dial tcp: address ", Reason.NAME),
    ("missing address", Reason.NAME),
    ("connection refused", Reason.REFUSED),
    ("connection reset by peer", Reason.REFUSED),
    ("i/o timeout", Reason.TIMEOUT),
    ("timed out", Reason.TIMEOUT),
    ("deadline exceeded", Reason.TIMEOUT),
    ("no route to host", Reason.UNREACHABLE),
    ("network is unreachable", Reason.UNREACHABLE),
    ("network is down", Reason.UNREACHABLE),
    ("host is down", Reason.UNREACHABLE),
    ("cannot assign requested address", Reason.UNREACHABLE),
    ("address family not supported", Reason.UNREACHABLE),
    ("permission denied", Reason.UNREACHABLE),
    ("operation not permitted", Reason.UNREACHABLE),
    ("invalid argument", Reason.UNREACHABLE),
)
"""In lower case; the first that is found counts. The server's own words come first: they may quote an agent's."""

STATUSES: Final = {
    401: Reason.FORBIDDEN,
    403: Reason.FORBIDDEN,
    407: Reason.FORBIDDEN,
    500: Reason.SERVER,
    502: Reason.AGENT_LOST,
    503: Reason.AGENT_LOST,
    504: Reason.TIMEOUT,
}
"""Where the text says nothing. Any other status is none that a dial is answered with."""

GRPC_CODES: Final = (
    ("code = unavailable", Reason.SERVER),
    ("code = permissiondenied", Reason.FORBIDDEN),
    ("code = unauthenticated", Reason.FORBIDDEN),
)
"""How grpc-go begins the text of a stream that ended without an answer."""


def reason_of_reply(status: int, body: str) -> Reason:
    """For an http-connect server's answer other than 200."""
    if status not in STATUSES:
        return Reason.PROTOCOL
    if STATUSES[status] is Reason.FORBIDDEN:
        return Reason.FORBIDDEN
    return _by_text(body) or STATUSES[status]


def reason_of_text(text: str) -> Reason:
    """For the error of a DIAL_RSP; what no table knows is an agent's error on the dial, and final."""
    return _by_text(text) or Reason.UNREACHABLE


def reason_of_stream_end(text: str) -> Reason:
    """For a Proxy stream that ended before the dial was answered."""
    lower = text.lower()
    for prefix, reason in GRPC_CODES:
        if prefix in lower:
            return reason
    return Reason.PROTOCOL if "rpc error" in lower else Reason.SERVER


def _by_text(text: str) -> Reason | None:
    lower = text.lower()
    for part, reason in TEXTS:
        if part in lower:
            return reason
    return None
