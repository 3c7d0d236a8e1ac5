"""One dialled TCP connection of the agent: its bytes both ways, and its end.

Reading stops while the server asks for a pause or nothing can be sent to it. Writing never blocks: what the endpoint
does not take waits here, bounded in bytes (backlog.py).
"""

import logging
import socket
from typing import Final

from umbilical.konnectivity.commands import CONNECTED, FLUSHING, EndpointConnection
from umbilical.tunnel import causes
from umbilical.tunnel.backlog import STUCK_SECONDS, Backlog, Brake
from umbilical.tunnel.channel import AGAIN, END, Channel
from umbilical.tunnel.dialing import Dial, DialDesk, DialOwner
from umbilical.tunnel.linger import LingerRoom
from umbilical.tunnel.loop import HANGUP, IN, Deadlines, Loop
from umbilical.tunnel.metrics import AgentMetrics
from umbilical.tunnel.payload import Inlet, Outlet
from umbilical.tunnel.settings import Limits
from umbilical.tunnel.transport import TUNNEL_WINDOW_BYTES, Transport
from umbilical.tunnel.tunnel_stream import TunnelStream
from umbilical.wire.http2 import frames
from umbilical.wire.http2.connection import Connection
from umbilical.wire.http2.streams import Stream

logger = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 60.0
"""How long an endpoint may take to accept the last bytes of a tunnel that was closed."""


class Workshop:
    """What all endpoints of one agent share."""

    def __init__(self, loop: Loop, desk: DialDesk, limits: Limits, metrics: AgentMetrics) -> None:
        self.loop: Final = loop
        self.desk: Final = desk
        self.limits: Final = limits
        self.metrics: Final = metrics
        self.lingering: Final = LingerRoom(loop)
        self.flushing: Final = Deadlines(loop, FLUSH_SECONDS)
        self.stuck: Final = Deadlines(loop, STUCK_SECONDS)


class EndpointLink(Transport):
    """What an endpoint needs of the connection to its server; `ServerLink` fulfils it."""

    def __init__(self, loop: Loop, channel: Channel, connection: Connection) -> None:
        super().__init__(loop, channel, connection)
        self.stream: Stream | None = None
        self.brake: Brake | None = None
        self.understands_pause = False
        self.has_own_streams = False

    def open_stream(self, endpoint: "Endpoint") -> TunnelStream | None:
        """A stream of the endpoint's own; None when the server allows no more."""
        return None

    def endpoint_opened(self, endpoint: "Endpoint") -> None:
        """Its dial succeeded."""

    def endpoint_refused(self, endpoint: "Endpoint", text: str) -> None:
        """Its dial failed."""

    def endpoint_flushed(self, endpoint: "Endpoint") -> None:
        """All bytes of a closed tunnel have reached it."""

    def endpoint_ended(self, endpoint: "Endpoint", error: str, cause: str) -> None:
        """It closed, failed, or was given up."""

    def tunnel_over(self, endpoint: "Endpoint", cause: str) -> None:
        """Both sides of its own stream have ended, or the server reset it."""

    def pause_sender(self, endpoint: "Endpoint") -> None:
        """It takes its bytes too slowly."""

    def resume_sender(self, endpoint: "Endpoint") -> None:
        """It has caught up."""


class Endpoint(DialOwner):
    def __init__(self, link: EndpointLink, record: EndpointConnection, workshop: Workshop) -> None:
        self.link: Final = link
        self.record: Final = record
        self.asked_at: Final = workshop.loop.now
        self.bytes_to_endpoint = 0
        self.paused = False
        """The server asked us to stop reading."""
        self._workshop: Final = workshop
        self._loop: Final = workshop.loop
        self._pause_above = workshop.limits.pause_above_bytes
        self._dial: Dial | None = None
        self._channel: Channel | None = None
        self._outlet: Outlet | None = None
        self._inlet: Inlet | None = None
        self._own: TunnelStream | None = None
        self._read_all = False
        """The endpoint has ended its side, which the server was told."""
        self._server_ended = False
        self._dirty = False
        self._backlog: Backlog | None = None

    def start(self) -> None:
        self._dial = self._workshop.desk.dial(self, self.record.network, self.record.address)

    def cancel(self) -> None:
        if self._dial is not None:
            self._dial.cancel()

    def dial_succeeded(self, sock: socket.socket, mask: int) -> None:
        stream = self.link.stream
        assert stream is not None
        channel = Channel(self._loop, sock)
        if self.link.has_own_streams:
            own = self._own = self.link.open_stream(self)
            if own is None:
                channel.adopt(self)
                channel.close()
                self.dial_failed("too many tunnels: the server allows no more streams")
                return
            stream = own.stream
            self._pause_above = min(self._pause_above, TUNNEL_WINDOW_BYTES >> 1)
        self._channel = channel
        self._outlet = Outlet(channel)
        counts = self._workshop.metrics.from_agent
        self._inlet = Inlet(self, self.link, stream, self.record.connection_id, counts)
        channel.adopt(self)
        self._workshop.metrics.dial_seconds.observe(self._loop.now - self.asked_at)
        self.link.endpoint_opened(self)
        if mask & (IN | HANGUP):
            channel.on_events(mask)

    def dial_failed(self, text: str) -> None:
        self.link.endpoint_refused(self, text)

    def on_readable(self) -> None:
        self._pump()

    def on_again(self) -> None:
        self._pump()

    def on_room(self) -> None:
        if self._inlet is not None:
            self._inlet.in_line = False
        self._pump()

    def _pump(self) -> None:
        channel, inlet = self._channel, self._inlet
        if channel is None or inlet is None or inlet.in_line or self.paused or self.record.state != CONNECTED:
            return
        if self._read_all:
            return
        control = self.link.stream
        if self._own is not None and control is not None and control.backlog:
            inlet.stand_in_line()  # no payload may overtake the answer to the dial, which perhaps waits there
            return
        count = inlet.draw(channel)
        if count == AGAIN:
            return
        if count == END and self._own is not None:
            self._read_all = True
            self._own.end()
            self._end_if_both("endpoint closed")
        else:
            self._end("", "endpoint closed" if count == END else f"endpoint failed: {channel.error}")

    def bytes_from_endpoint(self) -> int:
        return 0 if self._inlet is None else self._inlet.bytes_written

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        if self._channel is not None:
            self._pump()

    def deliver(self, view: memoryview) -> None:
        outlet = self._outlet
        if outlet is None or self.record.state != CONNECTED:
            return
        size = len(view)
        before = outlet.waiting_bytes()
        self.bytes_to_endpoint += size
        if outlet.put(view) and not self._dirty:
            self._dirty = True
            self._loop.touch(self)
        waiting = outlet.waiting_bytes()
        if outlet.broken:
            self._end("", f"endpoint failed: {self._error()}")
            return
        if self._own is not None:
            self._own.arrived(size, waiting - before)
        if waiting > self._pause_above:
            self._hold_back(waiting)

    def server_ended(self) -> None:
        """The server sends no more on the tunnel's own stream: so do we to the endpoint, behind the last byte."""
        self._server_ended = True
        self._end_writing()

    def _end_writing(self) -> None:
        outlet, channel = self._outlet, self._channel
        if outlet is not None and channel is not None and outlet.is_empty() and self.record.state == CONNECTED:
            channel.end_sending()
            self._end_if_both("client closed")

    def _end_if_both(self, cause: str) -> None:
        """Over, once the endpoint has ended and has been told that the client did."""
        outlet = self._outlet
        if self._read_all and self._server_ended and outlet is not None and outlet.is_empty():
            self.link.tunnel_over(self, cause)
            self._leave()

    def stream_reset(self, code: int) -> None:
        """The server ended the tunnel's own stream, whole."""
        if self.record.state not in (CONNECTED, FLUSHING):
            return
        if code == frames.NO_ERROR and self._server_ended:
            if self.record.state == CONNECTED:
                self.record.state = FLUSHING
                self.flush_and_close()
            return
        self.link.tunnel_over(self, f"client gone (HTTP/2 error {code})")
        self._release_brake()
        self._workshop.flushing.discard(self)
        if self._channel is not None:
            self._channel.reset()

    def _hold_back(self, waiting: int) -> None:
        backlog, brake = self._backlog, self.link.brake
        if backlog is None and brake is not None:
            backlog = self._backlog = Backlog(self._workshop.limits, brake, self._workshop.stuck, self)
        if backlog is not None:
            backlog.grew(waiting)

    def ask_pause(self) -> bool:
        if self._own is not None:
            return True  # its window does
        if self.link.understands_pause:
            self.link.pause_sender(self)
        return self.link.understands_pause

    def ask_resume(self) -> None:
        if self._own is None:
            self.link.resume_sender(self)

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
        limit = self._workshop.limits.tunnel_buffer_bytes
        text = f"endpoint {self.record.address} reads nothing: more than {limit} bytes waited {STUCK_SECONDS:g} s"
        self._warn(f"tunnel closed: {text}")
        self._end(text, text)

    def on_flush(self) -> None:
        self._dirty = False
        self.on_writable()

    def on_writable(self) -> None:
        outlet = self._outlet
        if outlet is None or self.record.state not in (CONNECTED, FLUSHING):
            return
        before = outlet.waiting_bytes()
        outlet.flush()
        if outlet.broken:
            self._flush_failed()
            return
        waiting = outlet.waiting_bytes()
        if waiting < before and self._own is not None:
            self._own.taken(before - waiting)
        if self.record.state == FLUSHING:
            if outlet.is_empty():
                self._flushed()
            elif waiting < before:
                self._workshop.flushing.add(self)  # it moves: its time begins anew
            return
        if self._backlog is not None and waiting < before:
            self._backlog.shrank(waiting)
        if self._server_ended:
            self._end_writing()

    def _flush_failed(self) -> None:
        if self.record.state == FLUSHING:
            self._flushed()
        else:
            self._end("", f"endpoint failed: {self._error()}")

    def _error(self) -> str:
        return self._channel.error if self._channel is not None else "not connected"

    def flush_and_close(self) -> None:
        """The server asked to close: queued bytes first (fault tail-loss)."""
        self._release_brake()
        self._workshop.flushing.add(self)
        self.on_writable()

    def _flushed(self) -> None:
        self._workshop.flushing.discard(self)
        self.link.endpoint_flushed(self)
        self._leave()

    def on_timer(self) -> None:
        """The endpoint did not take the last bytes of a closed tunnel in time."""
        if self.record.state == FLUSHING:
            self.link.endpoint_flushed(self)
            self.abort()

    def _end(self, error: str, cause: str) -> None:
        """Our side of the story first: the server learns of the end behind all bytes that were read."""
        outlet = self._outlet
        if outlet is not None and not outlet.broken:
            outlet.flush()
        self.link.endpoint_ended(self, error, cause)
        self._leave()

    def _release_brake(self) -> None:
        if self._backlog is not None:
            self._backlog.over()
            self._backlog = None

    def _leave(self) -> None:
        self._release_brake()
        channel = self._channel
        if channel is None or channel.closed:
            return
        if channel.hung_up or channel.error:
            channel.close()
        else:
            self._workshop.lingering.take(channel)

    def abort(self) -> None:
        self._release_brake()
        self._workshop.flushing.discard(self)
        if self._channel is not None:
            self._channel.close()

    def on_lost(self, reason: str) -> None:
        self.link.endpoint_ended(self, "", reason)

    def abort_stream(self, code: int) -> None:
        """Tell the server by the tunnel's own stream that it is over, if it does not know."""
        if self._own is not None:
            self._own.abort(code)

    def has_own_stream(self) -> bool:
        return self._own is not None

    def on_crash(self, error: Exception) -> None:
        self.link.endpoint_ended(self, "", f"internal error: {error!r}")
        self.abort()
