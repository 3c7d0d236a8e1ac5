"""Clients that speak HTTP CONNECT: one request, one tunnel, one connection.

    head -> dialling -> tunnel          The directions of an open tunnel have states of their own: tunnel_end.py.
The 200 line goes out alone, before any byte of the endpoint; those wait for the next turn
(faults data-before-200, answer-with-data).
"""

import logging
import time
from typing import Final

from umbilical.konnectivity.dial_failure import DialFailure, FailureReason, http_reply, metric_reason
from umbilical.konnectivity.links import ENDED as TUNNEL_ENDED
from umbilical.konnectivity.links import Tunnel
from umbilical.tunnel import notices
from umbilical.tunnel.backlog import STUCK_SECONDS
from umbilical.tunnel.channel import AGAIN, END, Channel
from umbilical.tunnel.loop import Deadlines
from umbilical.tunnel.payload import Inlet
from umbilical.tunnel.server_core import ServerCore
from umbilical.tunnel.tls_channel import TlsChannel
from umbilical.tunnel.tunnel_end import CLOSED, CLOSING, ENDED, OPEN, PAUSED, SocketEnd
from umbilical.wire import http1
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2 import frames

logger = logging.getLogger(__name__)

_HEAD: Final = 1
DIALLING: Final = 2
_TUNNEL: Final = 3

HEAD_SECONDS: Final = 60.0
"""Upstream's limit for reading a request head."""
_HTTP_DATE: Final = "%a, %d %b %Y %H:%M:%S GMT"
_ESTABLISHED: Final = memoryview(http1.CONNECTION_ESTABLISHED)


class ConnectClient(SocketEnd):
    def __init__(self, channel: Channel, core: ServerCore, heads: Deadlines) -> None:
        super().__init__(channel, core.settings.limits, core.stuck, core.flushing)
        self.tunnel: Tunnel | None = None
        self._core: Final = core
        self._heads: Final = heads
        self._phase = _HEAD
        self._head: http1.Http1RequestReader | None = http1.Http1RequestReader()
        self._early = b""
        """What the client sent behind its request before the tunnel was open."""
        self._opened_turn = -1
        self._wants_trace = False

    def byte_counts(self) -> tuple[int, int]:
        return self.bytes_read(), self.bytes_delivered

    def identity(self) -> str:
        return self._channel.identity()

    def start(self) -> None:
        self._core.clients.add(self)
        self._heads.add(self)
        self._channel.start(self)
        if self._channel.is_plain:
            self._read_head()  # usually it has arrived already, which saves an event

    def on_readable(self) -> None:
        if self.writing >= CLOSING:
            if self.writing == CLOSING and self._channel.hung_up:
                self._finish()
        elif self._phase == _TUNNEL:
            self._read_tunnel()
        elif self._phase == _HEAD:
            self._read_head()
        elif self._channel.hung_up:
            self._hung_up_early()

    def _read_head(self) -> None:
        octets = self._loop.request
        count = self._channel.receive_into(octets)
        if count == AGAIN:
            return
        if count <= 0:
            self._finish()
            return
        head = self._head
        assert head is not None
        try:
            request = head.feed(bytes(octets[:count]))
        except ProtocolViolation as violation:
            self._answer(http1.violation_reply(violation))
            return
        if request is None:
            if self._channel.readable:
                self._loop.again(self)
        elif request.method != "CONNECT":
            self._refuse_method(request, head.rest)
        else:
            self._wants_trace = request.wants_trace
            refusal = self._refusal()
            if refusal:
                self._answer(http1.forbidden_reply(refusal))
            else:
                self._dial(request.address, head.rest)

    def _refusal(self) -> str:
        channel = self._channel
        if not isinstance(channel, TlsChannel):
            return ""
        channel.handshakes.admit(channel)
        return self._core.refuse_client(channel)

    def _refuse_method(self, request: http1.Http1Request, rest: bytes) -> None:
        reply = http1.method_not_allowed_reply(request, time.strftime(_HTTP_DATE, time.gmtime()).encode())
        if rest or not http1.stays_open(request):
            self._answer(reply)
            return
        self._head = http1.Http1RequestReader()
        self._heads.add(self)
        self._outlet.put(memoryview(reply))
        self._outlet.flush()
        if self._outlet.broken:
            self._finish()
        elif self._channel.readable:
            self._loop.again(self)

    def _dial(self, address: str, early: bytes) -> None:
        self._heads.discard(self)
        self._head = None
        self._early = early
        self._phase = DIALLING
        core = self._core
        tunnel = self.tunnel = Tunnel(self, core.next_dial_id(), address, self._loop.now)
        core.dial(tunnel, "tcp")
        if self._channel.hung_up and self._phase == DIALLING and self.writing == OPEN:
            self._hung_up_early()  # its end came in the same event as its request; no further event reports it

    def _hung_up_early(self) -> None:
        """A client may send its first bytes early and end its side; one that has no more to send is gone."""
        octets = self._loop.request
        count = self._channel.receive_into(octets)
        if count > 0:
            self._early += bytes(octets[:count])
        elif count != AGAIN and not (count == END and self._early):
            self._gone("client gone before the dial was answered")

    def on_timer(self) -> None:
        """A time limit: for the head, for a half-closed tunnel that moves nothing, or for the last bytes."""
        if self._phase != _TUNNEL or self.writing >= CLOSING:
            self._finish()
        elif self.reading == ENDED or self.writing != OPEN:
            seconds = self._core.settings.limits.half_closed_idle_seconds
            side = "client" if self.reading == ENDED else "endpoint"
            self._gone(f"{side} ended its side, and the other moved nothing for {seconds:g} s")
        else:
            self._gone("client closed, and the agent did not take its last bytes in time")

    def opened(self, tunnel: Tunnel) -> None:
        core = self._core
        agent = core.agent_of(tunnel)
        own = agent.own_stream(tunnel.connection_id, self)
        self._attach(own, agent.shared_credit)
        if not self._announce(tunnel):
            return
        stream = agent.stream if own is None else own.stream
        inlet = self._inlet = Inlet(self, agent.transport, stream, tunnel.connection_id, core.metrics.to_agent)
        inlet.unanswered = own
        self._phase = _TUNNEL
        self._opened_turn = self._loop.turns
        if self._early:
            self._send_early(inlet)
        if self._channel.readable:
            self._loop.again(self)

    def _announce(self, tunnel: Tunnel) -> bool:
        """Tell the client that its tunnel is open; False if it is gone."""
        core = self._core
        established = _ESTABLISHED
        if self._wants_trace:
            established = memoryview(http1.traced(http1.CONNECTION_ESTABLISHED, self._trace(tunnel)))
        started = time.perf_counter()
        sent = self._channel.send(established)
        core.metrics.frontend_write_seconds.observe(time.perf_counter() - started)
        if sent < 0:
            core.metrics.dial_failed(metric_reason(DialFailure(FailureReason.ANSWER_FAILED)))
            self._gone("client gone before the answer was sent")
            return False
        if sent < len(established):
            self._outlet.put(established[sent:])
        return True

    def refused(self, failure: DialFailure) -> None:
        if self._phase == DIALLING and self.writing == OPEN:
            reply = http_reply(failure)
            if self._wants_trace and self.tunnel is not None:
                reply = http1.traced(reply, self._trace(self.tunnel))
            self._answer(reply)

    def _trace(self, tunnel: Tunnel) -> list[tuple[str, str]]:
        """Headers for a client that asked which server and agent its dial took."""
        seconds = f"{self._loop.now - tunnel.asked_at:.6f}"
        agent = [] if tunnel.link is None else [("Umbilical-Agent", tunnel.link.agent_id)]
        return [("Umbilical-Server", self._core.settings.server_id), *agent, ("Umbilical-Dial-Seconds", seconds)]

    def _answer(self, reply: bytes) -> None:
        """Send a reply that ends the connection."""
        self._heads.discard(self)
        self._outlet.put(memoryview(reply))
        self._close_when_flushed()

    def _send_early(self, inlet: Inlet) -> None:
        taken = inlet.write(memoryview(self._early))
        self._early = self._early[taken:]

    def _read_tunnel(self) -> None:
        if self.reading != ENDED:
            self._read_more()
            if self._channel.hung_up and self.reading != ENDED:
                self._flushing.add(self)  # it ended its side and the agent takes nothing now: wait, with a time limit
        elif self._channel.is_gone:
            self._gone("client closed")

    def _read_over(self, count: int) -> None:
        if count == END and self._own is not None and not self._channel.is_gone:
            self._flushing.discard(self)
            self._end_reading(self._own)
        else:
            self._gone("client closed" if count == END else self._failure())

    def _failure(self) -> str:
        return f"client failed: {self._channel.error}"

    def _reading_ended(self) -> None:
        self._end_if_both()

    def _writing_ended(self) -> None:
        self._end_if_both()

    def _end_if_both(self) -> None:
        if self.reading == ENDED and self.writing != OPEN and self.tunnel is not None:
            self._core.stream_over(self.tunnel)
        else:
            self._moved_half_closed()

    def _moved_half_closed(self) -> None:
        self._core.half_closed.add(self)

    def peer_reset(self, code: int) -> None:
        if self.tunnel is not None:
            self._core.stream_lost(self.tunnel, code)

    def on_again(self) -> None:
        if self._dirty:
            self._dirty = False
            self._flush()
        if self.writing >= CLOSING:
            return
        if self._phase == _TUNNEL:
            self._send_more()
        elif self._phase == _HEAD:
            self._read_head()

    def _send_more(self) -> None:
        inlet = self._inlet
        if self._early and inlet is not None and not inlet.waiting:
            self._send_early(inlet)
        if not self._early:
            self._read_tunnel()

    def on_room(self, inlet: Inlet) -> None:
        if self.writing < CLOSING:
            self._send_more()

    def resume(self) -> None:
        if self.reading == PAUSED:
            self.reading = OPEN
            self._read_tunnel()

    def deliver(self, view: memoryview) -> None:
        if self._opened_turn != self._loop.turns:
            super().deliver(view)
            return
        self.bytes_delivered += len(view)
        self._outlet.hold(view)
        self._flush_next_turn()

    def _flush_next_turn(self) -> None:
        """The 200 line went out in this turn: what follows it waits for the next."""
        if not self._dirty:
            self._dirty = True
            self._loop.again(self)

    def _pause_sender(self) -> bool:
        return self.tunnel is not None and self._core.pause_sender(self.tunnel)

    def _resume_sender(self) -> None:
        if self.tunnel is not None:
            self._core.resume_sender(self.tunnel)

    def on_stalled(self, waiting: int) -> None:
        notices.client_stalled(self.tunnel, waiting)

    def on_stuck(self) -> None:
        limit = self._limits.tunnel_buffer_bytes
        text = f"client reads nothing: more than {limit} bytes waited {STUCK_SECONDS:g} s"
        if self.tunnel is not None:
            self._core.client_stuck(self.tunnel, text)
        self._gone(text)

    def end_idle(self, cause: str) -> None:
        self._gone(cause)

    def _write_failed(self) -> None:
        self._gone(self._failure())

    def closed(self, error: str, cause: str) -> None:
        self._drop_backlog()
        if self.writing < CLOSING:
            self._close_when_flushed()

    def _close_when_flushed(self) -> None:
        if self._opened_turn != self._loop.turns:
            super()._close_when_flushed()
            return
        self.reading = ENDED
        self.writing = CLOSING
        self._flushing.add(self)
        self._flush_next_turn()

    def _flushed(self) -> None:
        self._finish()

    def _gone(self, cause: str) -> None:
        """The client left, or must be closed; the agent learns of it behind the client's last byte."""
        tunnel, own = self.tunnel, self._own
        if tunnel is not None:
            self._core.report_tunnel(tunnel, cause)
            if own is None:
                self._core.client_closed(tunnel)
            elif tunnel.state != TUNNEL_ENDED:
                self.writing = CLOSING  # so that `closed`, called below, has nothing left to do
                own.close()
                self._core.stream_over(tunnel)
        self._finish()

    def _finish(self) -> None:
        if self.writing == CLOSED:
            return
        self.reading = ENDED
        self.writing = CLOSED
        self._drop_backlog()
        self._give_back()
        self._heads.discard(self)
        self._flushing.discard(self)
        self._core.half_closed.discard(self)
        self._core.clients.discard(self)
        channel = self._channel
        if channel.hung_up or channel.error or self._outlet.broken:
            channel.close()
        else:
            self._core.lingering.take(channel)

    def peer_certificate(self) -> bytes | None:
        return self._channel.peer_certificate()

    def on_lost(self, reason: str) -> None:
        if self.tunnel is None:
            self._core.client_failed(self._channel.peer(), reason)
        self._gone(reason)

    def on_crash(self, error: Exception) -> None:
        self._channel.reset()
        self.abort_stream(frames.INTERNAL_ERROR)
        try:
            self._gone(f"internal error: {error!r}")
        finally:
            self._finish()
