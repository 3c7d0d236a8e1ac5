"""What the server needs of a client, whichever way it came in: gRPC or CONNECT."""

import logging

from umbilical.konnectivity.dial_failure import DialFailure
from umbilical.konnectivity.links import Tunnel
from umbilical.tunnel import causes
from umbilical.tunnel.channel import Owner

logger = logging.getLogger(__name__)
tunnels = logging.getLogger("umbilical.tunnels")


class Client(Owner):
    """One side of one tunnel. The server calls; the client never decides."""

    def __init__(self) -> None:
        self.tunnel: Tunnel | None = None
        self.bytes_from_client = 0
        self.bytes_to_client = 0
        self.reported = False

    def opened(self, tunnel: Tunnel) -> None:
        """The dial succeeded."""

    def refused(self, failure: DialFailure) -> None:
        """The dial failed."""

    def closed(self, error: str, cause: str) -> None:
        """The endpoint's side is over: hand over what is buffered, then say so."""

    def deliver(self, view: memoryview) -> None:
        """Payload from the endpoint, valid during this call."""

    def endpoint_ended(self) -> None:
        """The endpoint sends no more on the tunnel's own stream; it may still read."""

    def endpoint_lost(self, cause: str) -> None:
        """The agent reset the tunnel's own stream."""

    def end_idle(self, cause: str) -> None:
        """Nothing has moved for too long: end the tunnel."""

    def pause(self) -> None:
        """The agent asks: read no more from this client for now."""

    def resume(self) -> None:
        """The agent's end has caught up."""

    def on_stalled(self, waiting: int) -> None:
        self.warn(f"client reads nothing, {waiting} bytes wait for it; its agent pauses this tunnel, others go on")

    def warn(self, text: str) -> None:
        """Our client stands still."""
        tunnel = self.tunnel
        if tunnel is None:
            return
        cause = causes.FailureCause("UMB403", text)
        logger.warning(
            "%s dial=%d connection=%d agent=%s target=%s: %s",
            cause.code,
            tunnel.dial_id,
            tunnel.connection_id,
            tunnel.link.agent_id if tunnel.link is not None else "-",
            tunnel.address,
            text,
            extra=cause.fields,
        )

    def report(self, now: float, cause: str, code: str = "") -> None:
        """The one line that a tunnel leaves in the log; `code` where it failed."""
        tunnel = self.tunnel
        if tunnel is None or self.reported:
            return
        self.reported = True
        redials = f" redials={len(tunnel.links_before)}" if tunnel.links_before else ""
        tunnels.info(
            'tunnel dial=%d connection=%d agent=%s target=%s up=%d down=%d ms=%d%s end="%s"',
            tunnel.dial_id,
            tunnel.connection_id,
            tunnel.link.agent_id if tunnel.link is not None else "-",
            tunnel.address,
            self.bytes_from_client,
            self.bytes_to_client,
            int((now - tunnel.asked_at) * 1000),
            f"{redials} code={code}" if code else redials,
            cause,
        )
