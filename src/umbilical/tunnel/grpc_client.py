"""One tunnel of a client that speaks gRPC: one Proxy stream.

    fresh -> dialling -> open -> closing -> over     A stream that is over only waits for its client to end it.
Upload takes the client's stream credit as back-pressure; download waits here, bounded, for the client's window.
"""

import logging
from typing import Final, cast

from umbilical.konnectivity.dial_failure import DialFailure, grpc_error_text
from umbilical.konnectivity.links import ENDED, Tunnel
from umbilical.tunnel.agent_stream import AgentStream
from umbilical.tunnel.backlog import STUCK_SECONDS, Backlog
from umbilical.tunnel.channel import Owner
from umbilical.tunnel.client import Client
from umbilical.tunnel.payload import Inlet
from umbilical.tunnel.server_core import ServerCore
from umbilical.tunnel.transport import TUNNEL_WINDOW_BYTES, Transport
from umbilical.tunnel.tunnel_stream import TunnelStream
from umbilical.wire import grpc, packets
from umbilical.wire.http2 import frames
from umbilical.wire.http2.streams import Stream

logger = logging.getLogger(__name__)

_FRESH: Final = 1
_DIALLING: Final = 2
_OPEN: Final = 3
_CLOSING: Final = 4
"""The client asked to close: its later packets are ignored, and the agent's answer is awaited."""
_OVER: Final = 5


class GrpcClient(Client):
    def __init__(self, transport: Transport, stream: Stream, core: ServerCore) -> None:
        super().__init__()
        self._transport: Final = transport
        self._stream: Final = stream
        self._core: Final = core
        self._loop: Final = core.loop
        self._state = _FRESH
        self._agent: AgentStream | None = None
        self._own: TunnelStream | None = None
        self._up_inlet: Inlet | None = None
        self._up = bytearray()
        """Payload that found no room towards the agent; bounded by the credit that is held back for it."""
        self._held_credit = 0
        self._paused = False
        self._down_inlet: Inlet | None = None
        self._down = bytearray()
        """Payload that found no window towards the client; bounded by `Limits.tunnel_buffer_bytes`."""
        self._asked_again = False
        self._opened_turn = -1
        self._backlog: Backlog | None = None
        self._farewell: bytes | None = None
        """The CLOSE_RSP that follows the last payload."""

    def on_packet(self, packet: packets.Packet) -> None:
        self._core.metrics.from_client[packet.kind if packet.kind <= packets.DRAIN else 7] += 1
        if isinstance(packet, packets.DialRequest):
            self._on_dial(packet)
        elif isinstance(packet, packets.CloseRequest):
            self._on_close(packet.connection_id)
        elif isinstance(packet, packets.CloseDial):
            self._on_cancel()
        elif isinstance(packet, packets.Data):
            self._on_data(packet.connection_id, memoryview(packet.payload))

    def on_payload(self, connection_id: int, view: memoryview) -> None:
        self._core.metrics.from_client[packets.DATA] += 1
        self._on_data(connection_id, view)

    def _on_dial(self, request: packets.DialRequest) -> None:
        if self._state != _FRESH:
            # One stream is one tunnel; a second dial would orphan the first.
            message = packets.encode_dial_response("this stream has dialled already", 0, request.dial_id)
            self._send(packets.DIAL_RSP, message)
            return
        self._state = _DIALLING
        self._core.dial(self, request.protocol, request.address, request.dial_id)

    def _on_cancel(self) -> None:
        tunnel = self.tunnel
        if tunnel is not None and self._state in (_DIALLING, _OPEN):
            self.report(self._loop.now, "dial cancelled by the client")
            self._state = _CLOSING
            self._end_tunnel(tunnel)

    def _on_close(self, connection_id: int) -> None:
        tunnel = self.tunnel
        if tunnel is None:
            self._send_close(connection_id, "backend uninitialized")
        elif self._state == _OPEN and connection_id != tunnel.connection_id:
            self._mismatch(connection_id)
        elif self._state in (_DIALLING, _OPEN):
            pending = self._state == _DIALLING
            self._state = _CLOSING
            self._close_upload(tunnel)
            if pending:
                self.report(self._loop.now, "client closed before the dial was answered")
                self._send_close(connection_id, "")

    def _close_upload(self, tunnel: Tunnel) -> None:
        """Tell the agent, but behind the client's last byte (fault tail-loss)."""
        if not self._up:
            self._end_tunnel(tunnel)

    def _on_data(self, connection_id: int, view: memoryview) -> None:
        if self._state == _OPEN:
            tunnel = self.tunnel
            if tunnel is None or connection_id == 0:
                return
            if connection_id != tunnel.connection_id:
                self._mismatch(connection_id)
                return
            self.bytes_from_client += len(view)
            self._forward(view)
        elif self._state == _FRESH:
            self._send_close(connection_id, "backend not initialized")
            self.end(grpc.OK, "")

    def _mismatch(self, connection_id: int) -> None:
        """DATA or CLOSE for a connection that is not this stream's. Upstream closes both at the agent, so that any
        client may close any other's tunnel; we close only its own (fault foreign-connection)."""
        tunnel = self.tunnel
        assert tunnel is not None
        text = "mismatched connection IDs"
        self.report(self._loop.now, text)
        self._state = _CLOSING
        self._send_close(tunnel.connection_id, text)
        self._send_close(connection_id, text)
        self._end_tunnel(tunnel)

    def _forward(self, view: memoryview) -> None:
        if self._up or self._paused:
            self._up += view
            return
        inlet = self._up_inlet
        assert inlet is not None
        taken = inlet.write(view)
        if taken < len(view):
            self._up += view[taken:]

    def on_room(self) -> None:
        if self._up_inlet is not None:
            self._up_inlet.in_line = False
        self._push_up()

    def _push_up(self) -> None:
        inlet = self._up_inlet
        if inlet is None or inlet.in_line or self._paused or not self._up or self._state not in (_OPEN, _CLOSING):
            return
        with memoryview(self._up) as view:
            taken = inlet.write(view)
        del self._up[:taken]
        if self._up:
            return
        self.credit(0)
        tunnel = self.tunnel
        if self._state == _CLOSING and tunnel is not None:
            self._end_tunnel(tunnel)

    def credit(self, size: int) -> None:
        """So much of the client's window was used; it is given back when nothing waits."""
        self._held_credit += size
        if not self._up and self._held_credit:
            self._transport.connection.credit(self._stream, self._held_credit)
            self._held_credit = 0
            if not self._transport.connection.outbox.is_empty():
                self._transport.touch()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._push_up()

    def opened(self, tunnel: Tunnel) -> None:
        link = tunnel.link
        assert link is not None
        agent = self._agent = cast(AgentStream, link.shell)
        metrics, connection_id = self._core.metrics, tunnel.connection_id
        own = self._own = agent.own_stream(connection_id, self)
        stream = agent.stream if own is None else own.stream
        up = self._up_inlet = Inlet(self, agent.transport, stream, connection_id, metrics.to_agent)
        up.unanswered = own
        self._down_inlet = Inlet(_DownLine(self), self._transport, self._stream, connection_id, metrics.to_client)
        self._state = _OPEN
        self._opened_turn = self._loop.turns
        self._send(packets.DIAL_RSP, packets.encode_dial_response("", tunnel.connection_id, tunnel.dial_id))

    def refused(self, failure: DialFailure) -> None:
        tunnel = self.tunnel
        assert tunnel is not None
        self._state = _OVER
        message = packets.encode_dial_response(grpc_error_text(failure), 0, tunnel.dial_id)
        self._send(packets.DIAL_RSP, message)

    def deliver(self, view: memoryview) -> None:
        size = len(view)
        self.bytes_to_client += size
        taken = 0
        if self._down or self._opened_turn == self._loop.turns:
            # konnectivity-client registers the connection a moment after it has read DIAL_RSP (fault answer-with-data).
            self._down += view
            self._ask_again()
        else:
            inlet = self._down_inlet
            assert inlet is not None
            taken = inlet.write(view)
            if taken < size:
                self._down += view[taken:]
        if self._own is not None:
            self._own.arrived(size, size - taken)
        if taken < size:
            self._check_backlog()

    def _check_backlog(self) -> None:
        core, agent = self._core, self._agent
        limits = core.settings.limits
        above = limits.pause_above_bytes if self._own is None else TUNNEL_WINDOW_BYTES >> 1
        if len(self._down) <= above or self._state == _OVER or agent is None:
            return
        backlog = self._backlog
        if backlog is None:
            backlog = self._backlog = Backlog(limits, agent.brake, core.stuck, self)
        backlog.grew(len(self._down))

    def ask_pause(self) -> bool:
        if self._own is not None:
            return True  # its window does
        return self.tunnel is not None and self._core.pause_sender(self.tunnel)

    def ask_resume(self) -> None:
        if self.tunnel is not None and self._own is None:
            self._core.resume_sender(self.tunnel)

    def on_stuck(self) -> None:
        tunnel = self.tunnel
        if tunnel is None or self._state == _OVER:
            return
        limit = self._core.settings.limits.tunnel_buffer_bytes
        text = f"client reads nothing: more than {limit} bytes waited {STUCK_SECONDS:g} s"
        self.warn(f"tunnel closed: {text}")
        self.report(self._loop.now, text, "UMB403")
        self._give_up(tunnel, text)

    def end_idle(self, cause: str) -> None:
        if self.tunnel is not None and self._state == _OPEN:
            self.report(self._loop.now, cause)
            self._give_up(self.tunnel, cause)

    def _give_up(self, tunnel: Tunnel, text: str) -> None:
        self._state = _CLOSING
        self._down.clear()
        self._send_close(tunnel.connection_id, text)
        self._end_tunnel(tunnel)

    def _release_brake(self) -> None:
        if self._backlog is not None:
            self._backlog.over()
            self._backlog = None

    def _ask_again(self) -> None:
        """What waits for the client goes on in the next turn, unless it stands in line for room anyway."""
        inlet = self._down_inlet
        if not self._asked_again and inlet is not None and not inlet.in_line:
            self._asked_again = True
            self._loop.again(self)

    def on_again(self) -> None:
        self._asked_again = False
        self._push_down()

    def on_down_room(self) -> None:
        if self._down_inlet is not None:
            self._down_inlet.in_line = False
        self._push_down()

    def _push_down(self) -> None:
        inlet = self._down_inlet
        if self._transport.closed or inlet is None:
            return
        if self._down:
            with memoryview(self._down) as view:
                taken = inlet.write(view)
            del self._down[:taken]
            if taken and self._own is not None:
                self._own.taken(taken)
            if taken and self._backlog is not None:
                self._backlog.shrank(len(self._down))
        if not self._down and self._farewell is not None:
            self._say_farewell(self._farewell)

    def endpoint_ended(self) -> None:
        """This protocol knows no half of an end: the tunnel is over, whole."""
        if self.tunnel is not None:
            self._end_tunnel(self.tunnel)

    def endpoint_lost(self, cause: str) -> None:
        if self.tunnel is not None:
            self.report(self._loop.now, cause)
            self._core.stream_over(self.tunnel)

    def _end_tunnel(self, tunnel: Tunnel) -> None:
        """Tell the agent; then our client hears of it by `closed`."""
        own = self._own
        if own is None or tunnel.state == ENDED:
            self._core.client_closed(tunnel)
        else:
            own.close()
            self._core.stream_over(tunnel)

    def closed(self, error: str, cause: str) -> None:
        tunnel = self.tunnel
        assert tunnel is not None
        if self._state == _OVER:
            return
        self._state = _OVER
        self._release_brake()
        self._up.clear()
        self.credit(0)
        farewell = packets.encode_close_response(error, tunnel.connection_id)
        if self._opened_turn == self._loop.turns:
            # An end in the same flush as DIAL_RSP would find no connection at the client, which then waits for ever.
            self._farewell = farewell
            self._ask_again()
        elif self._down:
            self._farewell = farewell
        else:
            self._say_farewell(farewell)

    def _say_farewell(self, farewell: bytes) -> None:
        self._farewell = None
        self._send(packets.CLOSE_RSP, farewell)

    def _send_close(self, connection_id: int, error: str) -> None:
        self._send(packets.CLOSE_RSP, packets.encode_close_response(error, connection_id))

    def _send(self, kind: int, message: bytes) -> None:
        transport = self._transport
        if transport.closed:
            return
        self._core.metrics.to_client[kind] += 1
        if kind == packets.CLOSE_RSP:
            transport.connection.sender.send_ordered(self._stream, message)
        else:
            transport.connection.sender.send_message(self._stream, message)
        transport.touch()

    def end(self, status: int, text: str) -> None:
        """The client ended the stream or broke its rules: answer with a status and forget it."""
        self.gone("client ended its stream" if status == grpc.OK else f"protocol violation: {text}")
        self._transport.finish(self._stream, status, text)

    def gone(self, cause: str) -> None:
        if self._stream.owner is None:
            return
        self._stream.owner = None
        self._core.proxy_streams -= 1
        self._up.clear()
        self._down.clear()
        self._farewell = None
        self._state = _OVER
        self._release_brake()
        tunnel = self.tunnel
        if tunnel is not None and tunnel.state != ENDED:
            self.report(self._loop.now, cause)
            self._end_tunnel(tunnel)

    def on_crash(self, error: Exception) -> None:
        logger.error("internal error in a client stream: %r", error)
        self._transport.connection.sender.reset(self._stream, frames.INTERNAL_ERROR)
        self.gone(f"internal error: {error!r}")


class _DownLine(Owner):
    """Stands in the client transport's line for a stream; the stream itself may stand in the agent's."""

    def __init__(self, client: GrpcClient) -> None:
        self._client: Final = client

    def on_room(self) -> None:
        self._client.on_down_room()
