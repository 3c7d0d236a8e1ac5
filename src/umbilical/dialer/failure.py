"""Why a dial through the tunnel failed: one enum, one table to the words of SOCKS, HTTP and people, and the way back.

The wire has no codes for it: http-connect has a status that is chosen by substring, gRPC has text alone. So a server's
words (ours, upstream's, and Go's inside them) are read for the reason.
"""

from enum import Enum
from typing import Final

from umbilical.record import Record


class DialReason(Enum):
    REFUSED = "refused"
    """The endpoint's machine answered: nothing listens there."""
    UNREACHABLE = "unreachable"
    """The agent has no route to the endpoint."""
    TIMEOUT = "timeout"
    """The endpoint, or the agent on its behalf, did not answer in time."""
    NAME = "name"
    """The endpoint's name does not exist, or has no usable address."""
    NO_AGENT = "no-agent"
    """The server has no agent for this endpoint."""
    AGENT_LOST = "agent-lost"
    """The agent went, or was too busy, while it dialled."""
    SERVER = "server"
    """No server can be reached: refused, silent, or gone in the middle."""
    TLS = "tls"
    """The handshake with the server failed: its certificate or ours is not accepted."""
    FORBIDDEN = "forbidden"
    """Policy says no: the server's, or a proxy's on the way that wants credentials."""
    PROXY = "proxy"
    """A proxy behind the tunnel failed or answered what it must not."""
    PROTOCOL = "protocol"
    """The server answered something that is no answer to a dial."""


class FailureReport(Record):
    """What each protocol says for one reason."""

    socks_reply: int
    """RFC 1928 section 6."""
    http_status: int
    code: str
    """Of docs/errors.md."""
    words: str
    remedy: str


REPORTS: Final = {
    DialReason.REFUSED: FailureReport(
        5, 502, "UMB501", "the endpoint refused the connection", "does its pod run, and listen on this port?"
    ),
    DialReason.UNREACHABLE: FailureReport(
        3, 502, "UMB502", "the agent has no way to the endpoint", "on the agent's node: ip route get ADDRESS"
    ),
    DialReason.TIMEOUT: FailureReport(
        6,
        504,
        "UMB503",
        "the endpoint does not answer",
        "look at the endpoint, and at network policies between the agent's node and it",
    ),
    DialReason.NAME: FailureReport(
        4, 502, "UMB504", "the endpoint's name cannot be resolved", "ask the same resolver by hand: dig NAME @SERVER"
    ),
    DialReason.NO_AGENT: FailureReport(
        1, 503, "UMB505", "the server has no agent for this endpoint", "look at the agents' pods and their logs"
    ),
    DialReason.AGENT_LOST: FailureReport(
        1, 503, "UMB506", "the agent went, or was too busy, while it dialled", "try again; then look at the agent's log"
    ),
    DialReason.SERVER: FailureReport(
        1, 503, "UMB507", "no server of the tunnel answers", "look at the servers' pods, and at the way to them"
    ),
    DialReason.TLS: FailureReport(
        1,
        502,
        "UMB508",
        "the TLS handshake with the server failed",
        "compare CA, names and dates: umbilical pki inspect",
    ),
    DialReason.FORBIDDEN: FailureReport(
        2, 403, "UMB509", "a policy on the way says no", "ask whoever set it; look at credentials"
    ),
    DialReason.PROXY: FailureReport(1, 502, "UMB510", "the proxy behind the tunnel failed", "look at that proxy's log"),
    DialReason.PROTOCOL: FailureReport(
        1,
        502,
        "UMB511",
        "the server's answer is none to a dial",
        "is this the server's port for clients, and the right protocol?",
    ),
}


MAX_TEXT: Final = 4096
"""Of others' words: an agent may send a megabyte of them."""


def one_line(text: str) -> str:
    """What others said goes into one line of ours, and nothing else."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


class DialFailed(Exception):
    """There is no connection. `hop` names where it broke, as the user knows it: a server's address, the endpoint's.

    `brief` is for logs, `told` for people: bodies of HTTP replies, terminals.
    """

    def __init__(self, reason: DialReason, hop: str, text: str, status_line: str = "") -> None:
        said = one_line(text[:MAX_TEXT])
        super().__init__(f"{hop}: {said}")
        self.reason: Final = reason
        self.hop: Final = hop
        self.text: Final = said
        """As the failing side said it, on one line."""
        self.status_line: Final = status_line
        """Of an http-connect server's refusal, such as `502 Bad Gateway`; empty where there was none."""

    @property
    def report(self) -> FailureReport:
        return REPORTS[self.reason]

    @property
    def brief(self) -> str:
        """One line: the code, what it means, where, and the failing side's own words."""
        report = self.report
        return f"{report.code} {report.words}: {self.hop}: {self.text}"

    @property
    def told(self) -> str:
        """Three lines: what, why, what next."""
        report = self.report
        return f"{report.code} {report.words}\n  why: {self.hop}: {self.text}\n  next: {report.remedy}\n"


class TunnelLost(ConnectionResetError):
    """The way to the server broke under an open connection: the endpoint has no part in it."""

    CODE: Final = "UMB513"
    REMEDY: Final = "try again: another server takes it; then look at why this one went"

    def __init__(self, server: str, text: str) -> None:
        super().__init__(f"the tunnel broke: server {server}: {text}")
        self.server: Final = server


TEXTS: Final = (
    ("no agent available", DialReason.NO_AGENT),
    ("no backend available", DialReason.NO_AGENT),
    ("no tunnels available", DialReason.NO_AGENT),
    ("failed to tunnel dial request", DialReason.AGENT_LOST),
    ("backend context error", DialReason.AGENT_LOST),
    ("agent disconnected", DialReason.AGENT_LOST),
    ("dial closed", DialReason.AGENT_LOST),
    ("too many open files", DialReason.AGENT_LOST),
    ("cannot allocate memory", DialReason.AGENT_LOST),
    ("no buffer space available", DialReason.AGENT_LOST),
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
"""In lower case; the first that is found counts. The server's own words come first: they may quote an agent's."""

STATUSES: Final = {
    401: DialReason.FORBIDDEN,
    403: DialReason.FORBIDDEN,
    407: DialReason.FORBIDDEN,
    500: DialReason.SERVER,
    502: DialReason.AGENT_LOST,
    503: DialReason.AGENT_LOST,
    504: DialReason.TIMEOUT,
}
"""Where the text says nothing. Any other status is none that a dial is answered with."""

GRPC_CODES: Final = (
    ("code = unavailable", DialReason.SERVER),
    ("code = permissiondenied", DialReason.FORBIDDEN),
    ("code = unauthenticated", DialReason.FORBIDDEN),
)
"""How grpc-go begins the text of a stream that ended without an answer."""


def reason_of_reply(status: int, body: str) -> DialReason:
    """For an http-connect server's answer other than 200."""
    if status not in STATUSES:
        return DialReason.PROTOCOL
    if STATUSES[status] is DialReason.FORBIDDEN:
        return DialReason.FORBIDDEN
    return _by_text(body) or STATUSES[status]


def reason_of_text(text: str) -> DialReason:
    """For the error of a DIAL_RSP; what no table knows is an agent's error on the dial, and final."""
    return _by_text(text) or DialReason.UNREACHABLE


def reason_of_stream_end(text: str) -> DialReason:
    """For a Proxy stream that ended before the dial was answered."""
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
