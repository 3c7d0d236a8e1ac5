"""The agent's side of one tunnel: the dial of its endpoint, then the TCP connection and its end.

Reading stops while the server asks for a pause or cannot take more. Writing never blocks: what the endpoint does not
take waits here, bounded in bytes (backlog.py).
"""

import logging
import socket
from typing import Final

from umbilical.konnectivity.commands import CONNECTED, FLUSHING, EndpointConnection
from umbilical.konnectivity.dial_failure import endpoint_failure_code
from umbilical.tunnel import causes, faults
from umbilical.tunnel.backlog import STUCK_SECONDS, SharedCredit
from umbilical.tunnel.channel import END, Channel
from umbilical.tunnel.dialing import Dial, DialOwner, EndpointDialer
from umbilical.tunnel.events import EventSource
from umbilical.tunnel.linger import LingeringChannels
from umbilical.tunnel.loop import HANGUP, IN, Deadlines, Loop
from umbilical.tunnel.metrics import AgentMetrics
from umbilical.tunnel.payload import Inlet
from umbilical.tunnel.recent import RecentTroubles
from umbilical.tunnel.round_trips import WindowBudget
from umbilical.tunnel.settings import Limits
from umbilical.tunnel.transport import Transport
from umbilical.tunnel.tunnel_end import CLOSED, HALF_CLOSED, OPEN, SocketEnd
from umbilical.tunnel.tunnel_end import ENDED as READING_ENDED
from umbilical.tunnel.tunnel_stream import TunnelStream
from umbilical.wire.http2 import frames
from umbilical.wire.http2.connection import Connection
from umbilical.wire.http2.streams import Stream

logger = logging.getLogger(__name__)
tunnels = logging.getLogger("umbilical.tunnels")

FLUSH_SECONDS: Final = 60.0
"""How long an endpoint may take to accept the last bytes of a tunnel that was closed."""


class EndpointContext:
    """What all endpoints of one agent share."""

    def __init__(
        self, loop: Loop, dialer: EndpointDialer, limits: Limits, metrics: AgentMetrics, budget: WindowBudget
    ) -> None:
        self.loop: Final = loop
        self.dialer: Final = dialer
        self.limits: Final = limits
        self.metrics: Final = metrics
        self.window_budget: Final = budget
        self.events: Final = EventSource()
        self.recent: Final = RecentTroubles(loop, metrics.dial_seconds)
        self.lingering: Final = LingeringChannels(loop)
        self.flushing: Final = Deadlines(loop, FLUSH_SECONDS)
        self.stuck: Final = Deadlines(loop, STUCK_SECONDS)


class EndpointLink(Transport):
    """The connection to the server, as endpoints use it; implemented by `ServerLink`."""

    def __init__(self, loop: Loop, channel: Channel, connection: Connection) -> None:
        super().__init__(loop, channel, connection)
        self.stream: Stream | None = None
        self.shared_credit: SharedCredit | None = None
        self.understands_pause = False
        self.has_own_streams = False
        self.is_sibling = False
        """It is no server, but another worker of the same one."""

    def server_id(self) -> str:
        return "unknown"

    def open_stream(self, record: EndpointConnection) -> TunnelStream | None:
        """Open the tunnel's own stream; None when the server allows no more."""
        return None

    def endpoint_opened(self, record: EndpointConnection) -> None:
        """The dial succeeded."""

    def endpoint_refused(self, record: EndpointConnection, text: str) -> None:
        """The dial failed."""

    def endpoint_flushed(self, endpoint: "Endpoint") -> None:
        """All bytes of a closed tunnel have reached the endpoint."""

    def endpoint_ended(self, endpoint: "Endpoint", error: str, cause: str) -> None:
        """The endpoint closed, failed, or was given up."""

    def tunnel_over(self, endpoint: "Endpoint", cause: str) -> None:
        """Both sides of the tunnel's own stream have ended, or the server reset it."""

    def pause_sender(self, record: EndpointConnection) -> None:
        """The endpoint takes its bytes too slowly."""

    def resume_sender(self, record: EndpointConnection) -> None:
        """The endpoint has caught up."""


class EndpointDial(DialOwner):
    """One dial on behalf of a server; it becomes an `Endpoint` when it succeeds."""

    def __init__(self, link: EndpointLink, record: EndpointConnection, context: EndpointContext) -> None:
        self._link: Final = link
        self._record: Final = record
        self._context: Final = context
        self._dial: Dial | None = None
        record.asked_at = context.loop.now

    def start(self) -> None:
        self._dial = self._context.dialer.dial(self, self._record.network, self._record.address)

    def cancel(self) -> None:
        if self._dial is not None:
            self._dial.cancel()
        self._report("dial cancelled")

    def _report(self, cause: str, code: str = "") -> None:
        record, context = self._record, self._context
        if context.events.heard and not self._link.is_sibling:
            seconds = context.loop.now - record.asked_at
            context.events.endpoint_failed(record, self._link.server_id(), cause, code, seconds)
        report(record, self._link, cause, code)

    def dial_succeeded(self, sock: socket.socket, mask: int) -> None:
        channel = Channel(self._context.loop, sock)
        try:
            self._open(channel, mask)
        except Exception as error:
            channel.reset()
            self._context.loop.crash(self._record.endpoint or self, faults.COMMAND, error)

    def on_crash(self, error: Exception) -> None:
        self.dial_failed(f"internal error: {error!r}")

    def _open(self, channel: Channel, mask: int) -> None:
        link, record = self._link, self._record
        own: TunnelStream | None = None
        if link.has_own_streams:
            own = link.open_stream(record)
            if own is None:
                channel.close()
                self.dial_failed("too many tunnels: the server allows no more streams")
                return
        endpoint = Endpoint(link, record, self._context, channel, own)
        record.endpoint = endpoint
        if own is not None:
            own.stream.owner = endpoint
        channel.adopt(endpoint)
        endpoint.dial_seconds = self._context.loop.now - record.asked_at
        self._context.metrics.dial_seconds.observe(endpoint.dial_seconds)
        if self._context.events.heard and not link.is_sibling:
            self._context.events.endpoint_opened(record, link.server_id(), endpoint.dial_seconds)
        link.endpoint_opened(record)
        if mask & (IN | HANGUP):
            channel.on_events(mask)

    def dial_failed(self, text: str) -> None:
        context, record = self._context, self._record
        code, seconds = endpoint_failure_code(text), context.loop.now - record.asked_at
        if not self._link.is_sibling:
            context.recent.dial_failed(record.address, self._link.server_id(), "", code, text, seconds)
        self._link.endpoint_refused(record, text)
        self._report(text, code)


class Endpoint(SocketEnd):
    def __init__(
        self,
        link: EndpointLink,
        record: EndpointConnection,
        context: EndpointContext,
        channel: Channel,
        own: TunnelStream | None,
    ) -> None:
        super().__init__(channel, context.limits, context.stuck, context.flushing)
        self.link: Final = link
        self.record: Final = record
        self.dial_seconds = 0.0
        self._context: Final = context
        stream = link.stream if own is None else own.stream
        assert stream is not None
        self._attach(own, link.shared_credit)
        self._inlet = Inlet(self, link, stream, record.connection_id, context.metrics.from_agent)

    def _read_more(self) -> None:
        inlet, control = self._inlet, self.link.stream
        if self._own is not None and control is not None and control.backlog and inlet is not None:
            if self.reading == OPEN:
                inlet.wait()  # the answer to the dial perhaps waits there, and no payload may overtake it
            return
        super()._read_more()

    def _read_over(self, count: int) -> None:
        if count == END and self._own is not None:
            self._end_reading(self._own)
        else:
            self._end("", "endpoint closed" if count == END else self._failure())

    def _failure(self) -> str:
        return f"endpoint failed: {self._channel.error}"

    def _reading_ended(self) -> None:
        self._end_if_both("endpoint closed")

    def _writing_ended(self) -> None:
        self._end_if_both("client closed")

    def _end_if_both(self, cause: str) -> None:
        if self.reading == READING_ENDED and self.writing == HALF_CLOSED:
            self.link.tunnel_over(self, cause)
            self._leave()

    def peer_reset(self, code: int) -> None:
        """The server reset the tunnel's own stream."""
        if self.record.state not in (CONNECTED, FLUSHING):
            return
        if code == frames.NO_ERROR and self.writing != OPEN:
            if self.record.state == CONNECTED:
                self.record.state = FLUSHING
                self.flush_and_close()
            return
        self.link.tunnel_over(self, f"client gone (HTTP/2 error {code})")
        self._stop()
        self._channel.reset()

    def _pause_sender(self) -> bool:
        if self.link.understands_pause:
            self.link.pause_sender(self.record)
        return self.link.understands_pause

    def _resume_sender(self) -> None:
        self.link.resume_sender(self.record)

    def on_stalled(self, waiting: int) -> None:
        self._warn(f"endpoint reads nothing, {waiting} bytes wait for it; the server pauses this tunnel, others go on")

    def _warn(self, text: str) -> None:
        record, cause = self.record, causes.FailureCause("UMB403", text)
        logger.warning(
            "%s dial=%d connection=%d target=%s: %s",
            cause.code,
            record.dial_id,
            record.connection_id,
            record.address,
            text,
            extra=cause.fields,
        )

    def on_stuck(self) -> None:
        limit = self._limits.tunnel_buffer_bytes
        text = f"endpoint {self.record.address} reads nothing: more than {limit} bytes waited {STUCK_SECONDS:g} s"
        self._warn(f"tunnel closed: {text}")
        self._end(text, text)

    def _write_failed(self) -> None:
        if self.record.state == FLUSHING:
            self._flushed()
        else:
            self._end("", self._failure())

    def flush_and_close(self) -> None:
        """The server asked to close."""
        self._close_when_flushed()

    def _flushed(self) -> None:
        self.link.endpoint_flushed(self)
        self._leave()

    def on_timer(self) -> None:
        """The endpoint did not take the last bytes of a closed tunnel in time."""
        if self.record.state == FLUSHING:
            self.link.endpoint_flushed(self)
            self._close()

    def _end(self, error: str, cause: str) -> None:
        """Report the end to the server, behind all bytes that were read."""
        if not self._outlet.broken:
            self._outlet.flush()
        self.link.endpoint_ended(self, error, cause)
        self._leave()

    def _leave(self) -> None:
        self._stop()
        channel = self._channel
        if channel.closed:
            return
        if channel.hung_up or channel.error:
            channel.close()
        else:
            self._context.lingering.take(channel)

    def abort(self, cause: str) -> None:
        self._close()
        self.report(cause)

    def _close(self) -> None:
        self._stop()
        self._channel.close()

    def _stop(self) -> None:
        self._drop_backlog()
        self._give_back()
        self._flushing.discard(self)
        self.reading = READING_ENDED
        self.writing = CLOSED

    def on_lost(self, reason: str) -> None:
        self.link.endpoint_ended(self, "", reason)
        self._stop()

    def on_crash(self, error: Exception) -> None:
        self._channel.reset()
        try:
            self.link.endpoint_ended(self, "internal error", f"internal error: {error!r}")
        finally:
            self._close()

    def report(self, cause: str) -> None:
        record, up, down = self.record, self.bytes_delivered, self.bytes_read()
        events, link = self._context.events, self.link
        if events.heard and not link.is_sibling:
            age = self._loop.now - record.asked_at - self.dial_seconds
            events.endpoint_closed(record, link.server_id(), cause, (up, down), age)
        report(record, link, cause, up=up, down=down)


def report(
    record: EndpointConnection, link: EndpointLink, cause: str, code: str = "", *, up: int = 0, down: int = 0
) -> None:
    """Write the one log line of a tunnel; `code` where it failed."""
    if link.is_sibling:
        return  # the client's end, in this process too, has written it
    tunnels.info(
        'tunnel dial=%d connection=%d server=%s target=%s up=%d down=%d ms=%d%s end="%s"',
        record.dial_id,
        record.connection_id,
        link.server_id(),
        record.address,
        up,
        down,
        int((link.loop.now - record.asked_at) * 1000),
        f" code={code}" if code else "",
        cause,
    )
