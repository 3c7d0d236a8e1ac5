"""What the rules want done, in the imperative. The shells in `tunnel` obey; they decide nothing."""

from typing import Final

from umbilical.konnectivity.dial_failure import DialFailure
from umbilical.konnectivity.links import AgentLink, Tunnel

# A connection as the agent sees it.
DIALLING: Final = 1
CONNECTED: Final = 2
FLUSHING: Final = 3
"""The server asked to close; queued bytes go to the endpoint first (fault tail-loss)."""
GONE: Final = 4


class EndpointConnection:
    """One dial, and then one TCP connection, of an agent."""

    def __init__(self, dial_id: int, connection_id: int, network: str, address: str) -> None:
        self.dial_id: Final = dial_id
        self.connection_id = connection_id
        self.network: Final = network
        self.address: Final = address
        self.state = DIALLING
        self.shell: object | None = None


class Command:
    """Base of all orders."""


class ToAgent(Command):
    def __init__(self, link: AgentLink, kind: int, message: bytes) -> None:
        self.link: Final = link
        self.kind: Final = kind
        self.message: Final = message


class RefuseDial(Command):
    """Tell the client that its dial failed; its tunnel has ended."""

    def __init__(self, tunnel: Tunnel, failure: DialFailure) -> None:
        self.tunnel: Final = tunnel
        self.failure: Final = failure


class OpenTunnel(Command):
    """Tell the client that its dial succeeded."""

    def __init__(self, tunnel: Tunnel) -> None:
        self.tunnel: Final = tunnel


class CloseTunnel(Command):
    """Give the client what is buffered for it, then tell it that the tunnel is over."""

    def __init__(self, tunnel: Tunnel, error: str, cause: str) -> None:
        self.tunnel: Final = tunnel
        self.error: Final = error
        self.cause: Final = cause


class CountDialFailure(Command):
    def __init__(self, reason: str) -> None:
        self.reason: Final = reason


class RetireAgent(Command):
    """Its stream takes nothing any more: end it, so that nobody is sent there again."""

    def __init__(self, link: AgentLink) -> None:
        self.link: Final = link


class TellRedial(Command):
    """An agent can no longer answer a dial, and another has been asked."""

    def __init__(self, tunnel: Tunnel, left: AgentLink, cause: str) -> None:
        self.tunnel: Final = tunnel
        self.left: Final = left
        self.cause: Final = cause


class TellHealth(Command):
    """An agent has become the last choice, or is chosen as any other again (`link.sick`)."""

    def __init__(self, link: AgentLink, cause: str) -> None:
        self.link: Final = link
        self.cause: Final = cause


class ToServer(Command):
    def __init__(self, kind: int, message: bytes) -> None:
        self.kind: Final = kind
        self.message: Final = message


class StartDial(Command):
    def __init__(self, connection: EndpointConnection) -> None:
        self.connection: Final = connection


class CancelDial(Command):
    def __init__(self, connection: EndpointConnection) -> None:
        self.connection: Final = connection


class FlushAndClose(Command):
    """Write what is queued for the endpoint, close it, then report `endpoint_flushed`."""

    def __init__(self, connection: EndpointConnection) -> None:
        self.connection: Final = connection


class AbortEndpoint(Command):
    """Close at once: the server that it belonged to is gone."""

    def __init__(self, connection: EndpointConnection) -> None:
        self.connection: Final = connection
