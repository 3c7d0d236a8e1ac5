"""What the registry and the agent session want done. `tunnel` carries it out and decides nothing."""

from typing import Final, Protocol

from umbilical.konnectivity.dial_failure import DialFailure
from umbilical.konnectivity.links import AgentLink, Tunnel

# States of a connection at the agent.
DIALLING: Final = 1
CONNECTED: Final = 2
FLUSHING: Final = 3
"""The server asked to close; queued bytes go to the endpoint first (fault tail-loss)."""
GONE: Final = 4


class StartedDial(Protocol):
    def cancel(self) -> None:
        """Give the dial up, without an answer."""

    def on_crash(self, error: Exception) -> None:
        """Another method raised, which is a bug: answer that the dial failed."""


class ConnectedEndpoint(Protocol):
    def deliver(self, view: memoryview) -> None:
        """Payload for the endpoint, valid during this call."""

    def pause(self) -> None:
        """Stop reading from the endpoint: the client is slow."""

    def resume(self) -> None:
        """Read from the endpoint again."""

    def flush_and_close(self) -> None:
        """Write what is queued, then close and report `endpoint_flushed`."""

    def abort(self, cause: str) -> None:
        """Close at once, and log the cause."""

    def on_crash(self, error: Exception) -> None:
        """Another method raised, which is a bug: close the tunnel at both its ends."""


class EndpointConnection:
    """One dial of an agent, then its TCP connection."""

    def __init__(self, dial_id: int, connection_id: int, network: str, address: str) -> None:
        self.dial_id: Final = dial_id
        self.connection_id = connection_id
        self.network: Final = network
        self.address: Final = address
        self.state = DIALLING
        self.asked_at = 0.0
        self.dial: StartedDial | None = None
        self.endpoint: ConnectedEndpoint | None = None
        """Once it is connected."""


class Command:
    """Base of all commands."""


class ToAgent(Command):
    def __init__(self, link: AgentLink, kind: int, message: bytes) -> None:
        self.link: Final = link
        self.kind: Final = kind
        self.message: Final = message


class RefuseDial(Command):
    """Report the failed dial to the client; its tunnel has ended."""

    def __init__(self, tunnel: Tunnel, failure: DialFailure) -> None:
        self.tunnel: Final = tunnel
        self.failure: Final = failure


class OpenTunnel(Command):
    """Report the successful dial to the client."""

    def __init__(self, tunnel: Tunnel) -> None:
        self.tunnel: Final = tunnel


class CloseTunnel(Command):
    """Deliver what is buffered for the client, then close it."""

    def __init__(self, tunnel: Tunnel, error: str, cause: str) -> None:
        self.tunnel: Final = tunnel
        self.error: Final = error
        self.cause: Final = cause


class CountDialFailure(Command):
    def __init__(self, reason: str) -> None:
        self.reason: Final = reason


class RetireAgent(Command):
    """End the agent's stream, which takes no more packets, so that it gets no more dials."""

    def __init__(self, link: AgentLink) -> None:
        self.link: Final = link


class ReportRedial(Command):
    """Log that a dial went to another agent because the first can no longer answer."""

    def __init__(self, tunnel: Tunnel, left: AgentLink, cause: str) -> None:
        self.tunnel: Final = tunnel
        self.left: Final = left
        self.cause: Final = cause


class ReportHealth(Command):
    """Log that an agent became the last choice, or is healthy again (`link.sick`)."""

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
    """Close the endpoint at once: the connection to its server is lost."""

    def __init__(self, connection: EndpointConnection) -> None:
        self.connection: Final = connection
