"""Clients that ask with HTTP CONNECT: one request, one tunnel, one connection.

    head -> dialling -> open -> closing -> over
The 200 line goes out alone, before any byte of the endpoint; those wait for the next turn
(faults data-before-200, answer-with-data).
"""

import logging
import time
from typing import Final, cast

from umbilical.konnectivity.dial_failure import DialFailure, FailureReason, http_reply, metric_reason
from umbilical.konnectivity.links import ENDED, Tunnel
from umbilical.tunnel.agent_stream import AgentStream
from umbilical.tunnel.backlog import STUCK_SECONDS, Backlog
from umbilical.tunnel.channel import AGAIN, END, Channel, TlsChannel
from umbilical.tunnel.client import Client
from umbilical.tunnel.exchange import Exchange
from umbilical.tunnel.loop import Deadlines
from umbilical.tunnel.payload import Inlet, Outlet
from umbilical.tunnel.transport import TUNNEL_WINDOW_BYTES
from umbilical.tunnel.tunnel_stream import TunnelStream
from umbilical.wire import http1
from umbilical.wire.errors import ProtocolViolation

logger = logging.getLogger(__name__)

_HEAD: Final = 1
_DIALLING: Final = 2
_OPEN: Final = 3
_CLOSING: Final = 4
_OVER: Final = 5

HEAD_SECONDS: Final = 60.0
"""Upstream's limit for reading a request head."""
_HTTP_DATE: Final = "%a, %d %b %Y %H:%M:%S GMT"
_scratch: Final = memoryview(bytearray(64 * 1024))
_ESTABLISHED: Final = memoryview(http1.CONNECTION_ESTABLISHED)


class ConnectClient(Client):
    def __init__(self, channel: Channel, exchange: Exchange, heads: Deadlines) -> None:
        super().__init__()
        self._channel: Final = channel
        self._exchange: Final = exchange
        self._loop: Final = exchange.loop
        self._pause_above = exchange.settings.limits.pause_above_bytes
        self._outlet: Final = Outlet(channel)
        self._heads: Final = heads
        self._head: http1.Http1RequestReader | None = http1.Http1RequestReader()
        self._early = b""
        """What the client sent behind its request before the tunnel was open."""
        self._state = _HEAD
        self._opened_turn = -1
        self._agent: AgentStream | None = None
        self._inlet: Inlet | None = None
        self._own: TunnelStream | None = None
        self._sent_all = False
        """The client has ended its side, which the agent was told."""
        self._endpoint_ended = False
        self._dirty = False
        self._paused = False
        self._wants_trace = False
        self._backlog: Backlog | None = None

    def start(self) -> None:
        self._exchange.clients.add(self)
        self._heads.add(self)
        self._channel.start(self)
        if self._channel.is_plain:
            self._read_head()  # most often it is here already, and one event is saved

    def on_readable(self) -> None:
        state = self._state
        if state == _OPEN:
            self._pump()
            self._limit_last_bytes()
        elif state == _HEAD:
            self._read_head()
        elif state == _DIALLING:
            if self._channel.hung_up:
                self._hung_up_early()
        elif state == _CLOSING and self._channel.hung_up:
            self._finish()

    def _read_head(self) -> None:
        count = self._channel.receive_into(_scratch)
        if count == AGAIN:
            return
        if count <= 0:
            self._finish()
            return
        head = self._head
        assert head is not None
        try:
            request = head.feed(bytes(_scratch[:count]))
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
        return self._exchange.refuse_client(channel.tls, channel.peer()) if isinstance(channel, TlsChannel) else ""

    def _refuse_method(self, request: http1.Http1Request, rest: bytes) -> None:
        reply = http1.method_not_allowed_reply(request, time.strftime(_HTTP_DATE, time.gmtime()).encode())
        if rest or not http1.stays_open(request):
            self._answer(reply)
            return
        self._head = http1.Http1RequestReader()
        self._heads.add(self)
        self._outlet.put(memoryview(reply))
        self._outlet.flush()
        if self._channel.readable:
            self._loop.again(self)

    def _dial(self, address: str, early: bytes) -> None:
        self._heads.discard(self)
        self._head = None
        self._early = early
        self._state = _DIALLING
        self._exchange.dial(self, "tcp", address, self._exchange.next_dial_id())
        if self._channel.hung_up and self._state == _DIALLING:
            self._hung_up_early()  # its end came in the same event as its request, and will not be told again

    def _hung_up_early(self) -> None:
        """A client may send its request's bytes early and end its side; one that left nothing to send is gone."""
        count = self._channel.receive_into(_scratch)
        if count > 0:
            self._early += bytes(_scratch[:count])
        elif count != AGAIN and not (count == END and self._early):
            self._gone("client gone before the dial was answered")

    def on_timer(self) -> None:
        """The head did not come in time, or the last bytes were not taken in time."""
        if self._state == _OPEN and (self._sent_all or self._endpoint_ended):
            seconds = self._exchange.settings.limits.half_closed_idle_seconds
            side = "client" if self._sent_all else "endpoint"
            self._gone(f"{side} ended its side, and the other moved nothing for {seconds:g} s")
        elif self._state == _OPEN:
            self._gone("client closed, and the agent did not take its last bytes in time")
        else:
            self._finish()

    def opened(self, tunnel: Tunnel) -> None:
        link = tunnel.link
        assert link is not None
        agent = cast(AgentStream, link.shell)
        own = self._own = agent.own_stream(tunnel.connection_id, self)
        established = _ESTABLISHED
        if self._wants_trace:
            established = memoryview(http1.traced(http1.CONNECTION_ESTABLISHED, self._trace(tunnel)))
        started = time.perf_counter()
        sent = self._channel.send(established)
        self._exchange.metrics.frontend_write_seconds.observe(time.perf_counter() - started)
        if sent < 0:
            reason = DialFailure(FailureReason.ANSWER_FAILED)
            self._exchange.metrics.dial_failed(metric_reason(reason))
            self._gone("client gone before it was told of its connection")
            return
        if sent < len(established):
            self._outlet.put(established[sent:])
        self._agent = agent
        if own is not None:
            self._pause_above = min(self._pause_above, TUNNEL_WINDOW_BYTES >> 1)
        counts = self._exchange.metrics.to_agent
        stream = agent.stream if own is None else own.stream
        inlet = self._inlet = Inlet(self, agent.transport, stream, tunnel.connection_id, counts)
        inlet.unanswered = own
        self._state = _OPEN
        self._opened_turn = self._loop.turns
        if self._early:
            self._send_early(inlet)
        if self._channel.readable:
            self._loop.again(self)

    def refused(self, failure: DialFailure) -> None:
        if self._state == _DIALLING:
            reply = http_reply(failure)
            if self._wants_trace and self.tunnel is not None:
                reply = http1.traced(reply, self._trace(self.tunnel))
            self._answer(reply)

    def _trace(self, tunnel: Tunnel) -> list[tuple[str, str]]:
        """What a client that asked learns of the way its dial took."""
        seconds = f"{self._loop.now - tunnel.asked_at:.6f}"
        agent = [] if tunnel.link is None else [("Umbilical-Agent", tunnel.link.agent_id)]
        return [("Umbilical-Server", self._exchange.settings.server_id), *agent, ("Umbilical-Dial-Seconds", seconds)]

    def _answer(self, reply: bytes) -> None:
        """Send a reply that ends the connection."""
        self._heads.discard(self)
        self._state = _CLOSING
        self._outlet.put(memoryview(reply))
        self._finish_when_flushed()

    def _send_early(self, inlet: Inlet) -> None:
        taken = inlet.write(memoryview(self._early))
        self._early = self._early[taken:]
        self.bytes_from_client = inlet.bytes_written

    def _pump(self) -> None:
        inlet = self._inlet
        if inlet is None or inlet.in_line or self._paused:
            return
        if self._sent_all:
            if self._channel.is_gone:
                self._gone("client closed")
            return
        count = inlet.draw(self._channel)
        self.bytes_from_client = inlet.bytes_written
        if count == AGAIN:
            if self._endpoint_ended:
                self._exchange.half_closed.add(self)
        elif count == END and self._own is not None and not self._channel.is_gone:
            self._end_upload(self._own)
        else:
            self._gone("client closed" if count == END else f"client failed: {self._channel.error}")

    def _end_upload(self, own: TunnelStream) -> None:
        """The client has ended its side: so do we towards the endpoint, which may go on (fault no-half-close)."""
        self._sent_all = True
        self._exchange.flushing.discard(self)
        own.end()
        self._end_if_both()

    def endpoint_ended(self) -> None:
        self._endpoint_ended = True
        self._end_download()

    def _end_download(self) -> None:
        """Behind the endpoint's last byte the client learns of its end; it may go on sending."""
        if self._state == _OPEN and self._outlet.is_empty():
            if not self._sent_all:
                self._channel.end_sending()
            self._end_if_both()

    def _end_if_both(self) -> None:
        tunnel = self.tunnel
        if self._sent_all and self._endpoint_ended and tunnel is not None:
            self._exchange.stream_over(tunnel)
        else:
            self._exchange.half_closed.add(self)

    def endpoint_lost(self, cause: str) -> None:
        tunnel = self.tunnel
        if tunnel is not None:
            self.report(self._loop.now, cause)
            self._exchange.stream_over(tunnel)

    def on_again(self) -> None:
        if self._dirty:
            self._dirty = False
            self._flush()
        if self._state == _OPEN:
            inlet = self._inlet
            if self._early and inlet is not None and not inlet.in_line:
                self._send_early(inlet)
            if not self._early:
                self._pump()
        elif self._state == _HEAD:
            self._read_head()

    def on_room(self) -> None:
        if self._inlet is not None:
            self._inlet.in_line = False
        if self._state == _OPEN:
            self.on_again()
            self._limit_last_bytes()

    def _limit_last_bytes(self) -> None:
        """It ended its side and the agent takes nothing now: wait, but not for ever."""
        if self._channel.hung_up and self._state == _OPEN and not self._sent_all:
            self._exchange.flushing.add(self)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        if self._state == _OPEN:
            self._pump()
            self._limit_last_bytes()

    def deliver(self, view: memoryview) -> None:
        outlet = self._outlet
        size = len(view)
        before = outlet.waiting_bytes()
        self.bytes_to_client += size
        if self._opened_turn == self._loop.turns:
            outlet.hold(view)
            if not self._dirty:
                self._dirty = True
                self._loop.again(self)
            return
        if outlet.put(view) and not self._dirty:
            self._dirty = True
            self._loop.touch(self)
        if outlet.broken:
            self._gone(f"client failed: {self._channel.error}")
            return
        waiting = outlet.waiting_bytes()
        if self._own is not None:
            self._own.arrived(size, waiting - before)
            if self._sent_all:
                self._exchange.half_closed.add(self)
        if waiting > self._pause_above:
            self._hold_back(waiting)

    def _hold_back(self, waiting: int) -> None:
        backlog, agent = self._backlog, self._agent
        if backlog is None and agent is not None:
            exchange = self._exchange
            backlog = self._backlog = Backlog(exchange.settings.limits, agent.brake, exchange.stuck, self)
        if backlog is not None:
            backlog.grew(waiting)

    def ask_pause(self) -> bool:
        if self._own is not None:
            return True  # its window does
        return self.tunnel is not None and self._exchange.pause_sender(self.tunnel)

    def ask_resume(self) -> None:
        if self.tunnel is not None and self._own is None:
            self._exchange.resume_sender(self.tunnel)

    def on_stuck(self) -> None:
        limit = self._exchange.settings.limits.tunnel_buffer_bytes
        text = f"client reads nothing: more than {limit} bytes waited {STUCK_SECONDS:g} s"
        self.warn(f"tunnel closed: {text}")
        self.report(self._loop.now, text, "UMB403")
        self._gone(text)

    def end_idle(self, cause: str) -> None:
        self._gone(cause)

    def on_flush(self) -> None:
        self._dirty = False
        self._flush()

    def on_writable(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._state == _OVER:
            return
        outlet = self._outlet
        before = outlet.waiting_bytes()
        outlet.flush()
        if outlet.broken:
            self._gone(f"client failed: {self._channel.error}")
            return
        waiting = outlet.waiting_bytes()
        if waiting < before and self._own is not None and self._state == _OPEN:
            self._own.taken(before - waiting)
            if self._sent_all:
                self._exchange.half_closed.add(self)
        if self._state == _CLOSING:
            if outlet.is_empty():
                self._finish()
            elif waiting < before:
                self._exchange.flushing.add(self)  # it moves: its time begins anew
            return
        if self._backlog is not None and waiting < before:
            self._backlog.shrank(waiting)
        if self._endpoint_ended:
            self._end_download()

    def closed(self, error: str, cause: str) -> None:
        self._release_brake()
        if self._state in (_DIALLING, _OPEN):
            self._state = _CLOSING
            self._finish_when_flushed()

    def _release_brake(self) -> None:
        if self._backlog is not None:
            self._backlog.over()
            self._backlog = None

    def _finish_when_flushed(self) -> None:
        self._exchange.flushing.add(self)
        if self._opened_turn == self._loop.turns:
            self._dirty = True
            self._loop.again(self)  # the 200 line went out in this turn: what follows it waits for the next
            return
        self._flush()

    def _gone(self, cause: str) -> None:
        """The client left, or must: the agent is told behind the client's last byte."""
        tunnel, own = self.tunnel, self._own
        if tunnel is not None:
            self.report(self._loop.now, cause)
            if own is None:
                self._exchange.client_closed(tunnel)
            elif tunnel.state != ENDED:
                self._state = _CLOSING  # the end of the tunnel, told below, finds nothing left to do
                own.close()
                self._exchange.stream_over(tunnel)
        self._finish()

    def _finish(self) -> None:
        if self._state == _OVER:
            return
        self._state = _OVER
        self._release_brake()
        self._heads.discard(self)
        self._exchange.flushing.discard(self)
        self._exchange.half_closed.discard(self)
        self._exchange.clients.discard(self)
        channel = self._channel
        if channel.hung_up or channel.error or self._outlet.broken:
            channel.close()
        else:
            self._exchange.lingering.take(channel)

    def on_lost(self, reason: str) -> None:
        if self.tunnel is None:
            logger.info("client connection failed peer=%s: %s", self._channel.peer(), reason)
        self._gone(reason)

    def on_crash(self, error: Exception) -> None:
        logger.error("internal error in a client connection: %r", error)
        self._gone(f"internal error: {error!r}")
