"""Why a dial through the tunnel failed: one enum, and one table to the words of SOCKS, HTTP and people."""

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
    Reason.REFUSED: Verdict(5, 502, "UMB501", "connection refused by the endpoint", "does it listen on this port?"),
    Reason.UNREACHABLE: Verdict(
        3, 502, "UMB502", "no route from the agent to the endpoint", "ip route get, on the node"
    ),
    Reason.TIMEOUT: Verdict(6, 504, "UMB503", "the endpoint does not answer", "look at it, and at network policies"),
    Reason.NAME: Verdict(4, 502, "UMB504", "the name cannot be resolved", "ask the same resolver: dig NAME"),
    Reason.NO_AGENT: Verdict(1, 503, "UMB505", "no agent for this endpoint", "look at the agents' logs"),
    Reason.AGENT_LOST: Verdict(1, 503, "UMB506", "the agent went while it dialled", "try again"),
    Reason.SERVER: Verdict(1, 503, "UMB507", "no server of the tunnel answers", "look at the servers' pods"),
    Reason.TLS: Verdict(1, 502, "UMB508", "TLS with the server failed", "compare CA, names and dates"),
    Reason.FORBIDDEN: Verdict(2, 403, "UMB509", "not allowed", "ask whoever set the policy"),
    Reason.PROXY: Verdict(1, 502, "UMB510", "the proxy behind the tunnel failed", "look at the proxy"),
    Reason.PROTOCOL: Verdict(1, 502, "UMB511", "the server answers no dial", "is this the port for clients?"),
}


class DialFailed(Exception):
    """There is no connection. `hop` names where it broke, as the user knows it: a server's address, the endpoint's."""

    def __init__(self, reason: Reason, hop: str, text: str) -> None:
        super().__init__(f"{hop}: {text}")
        self.reason: Final = reason
        self.hop: Final = hop
        self.text: Final = text
        """As the failing side said it."""

    @property
    def verdict(self) -> Verdict:
        return VERDICTS[self.reason]
