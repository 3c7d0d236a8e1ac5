"""Why a dial through the tunnel failed: the reasons, how SOCKS5, HTTP and messages report them, and how to parse them.

The protocol has no codes for it: http-connect has a status that is chosen by substring, gRPC has text only. So the
reason is parsed from the server's text (ours, upstream's, and Go's in it).
"""

from enum import Enum
from typing import Final

from umbilical.record import Record


class DialReason(Enum):
    REFUSED = "refused"
    """The endpoint's machine refused the connection: no listener on this port."""
    UNREACHABLE = "unreachable"
    """The agent has no route to the endpoint."""
    TIMEOUT = "timeout"
    """The endpoint, or the agent on its behalf, did not answer in time."""
    NAME = "name"
    """The endpoint's name does not exist, or has no usable address."""
    NO_AGENT = "no-agent"
    """The server has no agent for this endpoint."""
    AGENT_LOST = "agent-lost"
    """The agent disconnected or was overloaded during the dial."""
    SERVER = "server"
    """No server can be reached: refused, no answer, or lost during the dial."""
    TLS = "tls"
    """The handshake with the server failed: its certificate or ours is not accepted."""
    FORBIDDEN = "forbidden"
    """Refused by policy: the server's, or a proxy's that requires credentials."""
    PROXY = "proxy"
    """A proxy behind the tunnel failed or sent an invalid response."""
    PROTOCOL = "protocol"
    """The server's response is not valid for a dial."""


class FailureReport(Record):
    """How one reason is reported: in SOCKS5, in HTTP, in messages."""

    socks_reply: int
    """RFC 1928 section 6."""
    http_status: int
    code: str
    """Of docs/errors.md."""
    words: str
    remedy: str


REPORTS: Final = {
    DialReason.REFUSED: FailureReport(
        5, 502, "UMB501", "the endpoint refused the connection", "check that its pod runs and listens on this port"
    ),
    DialReason.UNREACHABLE: FailureReport(
        3, 502, "UMB502", "the agent has no route to the endpoint", "on the agent's node: ip route get ADDRESS"
    ),
    DialReason.TIMEOUT: FailureReport(
        6,
        504,
        "UMB503",
        "the endpoint did not answer in time",
        "check the endpoint, and the NetworkPolicies between the agent's node and it",
    ),
    DialReason.NAME: FailureReport(
        4, 502, "UMB504", "the endpoint's name could not be resolved", "query the same resolver: dig NAME @SERVER"
    ),
    DialReason.NO_AGENT: FailureReport(
        1, 503, "UMB505", "the server has no agent for this endpoint", "check the agents' pods and their logs"
    ),
    DialReason.AGENT_LOST: FailureReport(
        1, 503, "UMB506", "the agent disconnected or was overloaded during the dial", "retry; then read the agent's log"
    ),
    DialReason.SERVER: FailureReport(
        1, 503, "UMB507", "no server of the tunnel answered", "check the servers' pods, and the network path to them"
    ),
    DialReason.TLS: FailureReport(
        1,
        502,
        "UMB508",
        "the TLS handshake with the server failed",
        "compare CA, names and dates: umbilical pki inspect FILE",
    ),
    DialReason.FORBIDDEN: FailureReport(
        2, 403, "UMB509", "the dial was refused by policy", "check the credentials and the policy of the hop above"
    ),
    DialReason.PROXY: FailureReport(1, 502, "UMB510", "the proxy behind the tunnel failed", "read that proxy's log"),
    DialReason.PROTOCOL: FailureReport(
        1,
        502,
        "UMB511",
        "the server's response is not valid for a dial",
        "check that this is the server's port for clients, and --protocol",
    ),
}


MAX_TEXT: Final = 4096
"""Limit for texts of peers: an agent may send a megabyte."""


def one_line(text: str) -> str:
    """Return a peer's text as one line without control characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


class DialFailed(Exception):
    """A dial failed. `hop` is the address that failed: a server's or the endpoint's."""

    def __init__(self, reason: DialReason, hop: str, text: str, status_line: str = "") -> None:
        line = one_line(text[:MAX_TEXT])
        super().__init__(f"{hop}: {line}")
        self.reason: Final = reason
        self.hop: Final = hop
        self.text: Final = line
        """The failing side's own text, on one line."""
        self.status_line: Final = status_line
        """The status of an http-connect server, such as `502 Bad Gateway`; empty if there was none."""

    @property
    def report(self) -> FailureReport:
        return REPORTS[self.reason]

    @property
    def brief(self) -> str:
        """One line: code, meaning, hop, and the failing side's own text."""
        report = self.report
        return f"{report.code} {report.words}: {self.hop}: {self.text}"


class TunnelLost(ConnectionResetError):
    """The connection to the server broke while a tunnel was open: not the endpoint's fault."""

    CODE: Final = "UMB513"
    REMEDY: Final = "retry: another server is used; then check why this server failed"

    def __init__(self, server: str, text: str) -> None:
        super().__init__(f"the tunnel broke: server {server}: {text}")
        self.server: Final = server


TEXTS: Final = (
    ("no agent available", DialReason.NO_AGENT),
    ("no backend available", DialReason.NO_AGENT),
    ("no tunnels available", DialReason.NO_AGENT),
    ("refused by a limit of the server", DialReason.AGENT_LOST),
    ("failed to tunnel dial request", DialReason.AGENT_LOST),
    ("backend context error", DialReason.AGENT_LOST),
    ("agent disconnected", DialReason.AGENT_LOST),
    ("dial closed", DialReason.AGENT_LOST),
    ("too many open files", DialReason.AGENT_LOST),
    ("cannot allocate memory", DialReason.AGENT_LOST),
    ("no buffer space available", DialReason.AGENT_LOST),
    ("destination denied", DialReason.FORBIDDEN),
    ("lookup ", DialReason.NAME),
    ("no such host", DialReason.NAME),
    ("no suitable address", DialReason.NAME),
    ("dial tcp: address ", DialReason.NAME),
    ("missing address", DialReason.NAME),
    ("connection refused", DialReason.REFUSED),
    ("connection reset by peer", DialReason.REFUSED),
    ("i/o timeout", DialReason.TIMEOUT),
    ("timed out", DialReason.TIMEOUT),
    ("deadline exceeded", DialReason.TIMEOUT),
    ("no route to host", DialReason.UNREACHABLE),
    ("network is unreachable", DialReason.UNREACHABLE),
    ("network is down", DialReason.UNREACHABLE),
    ("host is down", DialReason.UNREACHABLE),
    ("cannot assign requested address", DialReason.UNREACHABLE),
    ("address family not supported", DialReason.UNREACHABLE),
    ("permission denied", DialReason.UNREACHABLE),
    ("operation not permitted", DialReason.UNREACHABLE),
    ("invalid argument", DialReason.UNREACHABLE),
)
"""In lower case; the first match counts. The server's own texts come first: they may quote an agent's."""

STATUSES: Final = {
    401: DialReason.FORBIDDEN,
    403: DialReason.FORBIDDEN,
    407: DialReason.FORBIDDEN,
    500: DialReason.SERVER,
    502: DialReason.AGENT_LOST,
    503: DialReason.AGENT_LOST,
    504: DialReason.TIMEOUT,
}
"""Used when no text matches. Any other status is not valid for a dial."""

GRPC_CODES: Final = (
    ("code = unavailable", DialReason.SERVER),
    ("code = permissiondenied", DialReason.FORBIDDEN),
    ("code = unauthenticated", DialReason.FORBIDDEN),
)
"""Parts of grpc-go's text for a stream that ended without an answer."""


def reason_of_reply(status: int, body: str) -> DialReason:
    """Return the reason for an http-connect response other than 200."""
    if status not in STATUSES:
        return DialReason.PROTOCOL
    if STATUSES[status] is DialReason.FORBIDDEN:
        return DialReason.FORBIDDEN
    return _by_text(body) or STATUSES[status]


def reason_of_text(text: str) -> DialReason:
    """Return the reason for the error of a DIAL_RSP; an unknown text is the agent's error on the dial, and final."""
    return _by_text(text) or DialReason.UNREACHABLE


def reason_of_stream_end(text: str) -> DialReason:
    """Return the reason for a Proxy stream that ended before the dial was answered."""
    lower = text.lower()
    for prefix, reason in GRPC_CODES:
        if prefix in lower:
            return reason
    return DialReason.PROTOCOL if "rpc error" in lower else DialReason.SERVER


def _by_text(text: str) -> DialReason | None:
    lower = text.lower()
    for part, reason in TEXTS:
        if part in lower:
            return reason
    return None
