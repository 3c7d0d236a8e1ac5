"""Why a dial through the tunnel failed: one enum, one table to the words of SOCKS, HTTP and people, and the way back.

The wire has no codes for it: http-connect has a status that is chosen by substring, gRPC has text alone. So a server's
words (ours, upstream's, and Go's inside them) are read for the reason.
"""

from enum import Enum
from typing import Final

from umbilical.record import Record


class Reason(Enum):
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


class Verdict(Record):
    """What each protocol says for one reason."""

    socks_reply: int
    """RFC 1928 section 6."""
    http_status: int
    code: str
    """Of docs/errors.md."""
    words: str
    remedy: str


VERDICTS: Final = {
    Reason.REFUSED: Verdict(
        5, 502, "UMB501", "the endpoint refused the connection", "does its pod run, and listen on this port?"
    ),
    Reason.UNREACHABLE: Verdict(
        3, 502, "UMB502", "the agent has no way to the endpoint", "on the agent's node: ip route get ADDRESS"
    ),
    Reason.TIMEOUT: Verdict(
        6,
        504,
        "UMB503",
        "the endpoint does not answer",
        "look at the endpoint, and at network policies between the agent's node and it",
    ),
    Reason.NAME: Verdict(
        4, 502, "UMB504", "the endpoint's name cannot be resolved", "ask the same resolver by hand: dig NAME @SERVER"
    ),
    Reason.NO_AGENT: Verdict(
        1, 503, "UMB505", "the server has no agent for this endpoint", "look at the agents' pods and their logs"
    ),
    Reason.AGENT_LOST: Verdict(
        1, 503, "UMB506", "the agent went, or was too busy, while it dialled", "try again; then look at the agent's log"
    ),
    Reason.SERVER: Verdict(
        1, 503, "UMB507", "no server of the tunnel answers", "look at the servers' pods, and at the way to them"
    ),
    Reason.TLS: Verdict(
        1,
        502,
        "UMB508",
        "the TLS handshake with the server failed",
        "compare CA, names and dates: umbilical pki inspect",
    ),
    Reason.FORBIDDEN: Verdict(
        2, 403, "UMB509", "a policy on the way says no", "ask whoever set it; look at credentials"
    ),
    Reason.PROXY: Verdict(1, 502, "UMB510", "the proxy behind the tunnel failed", "look at that proxy's log"),
    Reason.PROTOCOL: Verdict(
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

    def __init__(self, reason: Reason, hop: str, text: str, status_line: str = "") -> None:
        said = one_line(text[:MAX_TEXT])
        super().__init__(f"{hop}: {said}")
        self.reason: Final = reason
        self.hop: Final = hop
        self.text: Final = said
        """As the failing side said it, on one line."""
        self.status_line: Final = status_line
        """Of an http-connect server's refusal, such as `502 Bad Gateway`; empty where there was none."""

    @property
    def verdict(self) -> Verdict:
        return VERDICTS[self.reason]

    @property
    def brief(self) -> str:
        """One line: the code, what it means, where, and the failing side's own words."""
        verdict = self.verdict
        return f"{verdict.code} {verdict.words}: {self.hop}: {self.text}"

    @property
    def told(self) -> str:
        """Three lines: what, why, what next."""
        verdict = self.verdict
        return f"{verdict.code} {verdict.words}\n  why: {self.hop}: {self.text}\n  next: {verdict.remedy}\n"


class TunnelLost(ConnectionResetError):
    """The way to the server broke under an open connection: the endpoint has no part in it."""

    CODE: Final = "UMB513"
    REMEDY: Final = "try again: another server takes it; then look at why this one went"

    def __init__(self, server: str, text: str) -> None:
        super().__init__(f"the tunnel broke: server {server}: {text}")
        self.server: Final = server


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
