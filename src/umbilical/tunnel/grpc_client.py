"""One tunnel of a client that speaks gRPC: one Proxy stream.

    fresh -> dialling -> open -> closing -> over     A stream that is over only waits for its client to end it.
Upload is limited by the client's stream credit; download waits here, bounded, for the client's window.
"""

from typing import Final

from umbilical.konnectivity.dial_failure import DialFailure, grpc_error_text
from umbilical.konnectivity.links import ENDED, Tunnel
from umbilical.tunnel import notices
from umbilical.tunnel.backlog import STUCK_SECONDS
from umbilical.tunnel.payload import Inlet
from umbilical.tunnel.server_core import ServerCore
from umbilical.tunnel.transport import Transport
from umbilical.tunnel.tunnel_end import PAUSED, TunnelEnd
from umbilical.wire import grpc, packets
from umbilical.wire.http2 import frames
from umbilical.wire.http2.streams import Stream

_FRESH: Final = 1
_DIALLING: Final = 2
_OPEN: Final = 3
_CLOSING: Final = 4
"""The client asked to close: its later packets are ignored until the agent answers."""
_OVER: Final = 5


class GrpcClient(TunnelEnd):
    def __init__(
        self, transport: Transport, stream: Stream, core: ServerCore, clients: dict[int, "GrpcClient"]
    ) -> None:
        """`clients` are those of the transport, by stream ID, until they are gone."""
        super().__init__(core.settings.limits, core.stuck)
        self.tunnel: Tunnel | None = None
        self.bytes_from_client = 0
        self.bytes_to_client = 0
        self._transport: Final = transport
        self._stream: Final = stream
        self._core: Final = core
        self._loop: Final = core.loop
        self._state = _FRESH
        self._up_inlet: Inlet | None = None
        self._up = bytearray()
        """Payload that found no room towards the agent; bounded by the credit that is withheld for it."""
        self._held_credit = 0
        self._down_inlet: Inlet | None = None
        self._down = bytearray()
        """Payload that found no window towards the client; bounded by `Limits.tunnel_buffer_bytes`."""
        self._opened_turn = -1
        self._farewell: bytes | None = None
        """The CLOSE_RSP that follows the last payload."""
        self._clients: Final = clients
        clients[stream.stream_id] = self
        core.proxy_streams += 1

    def byte_counts(self) -> tuple[int, int]:
        return self.bytes_from_client, self.bytes_to_client

    def waiting(self) -> tuple[int, bool]:
        return len(self._down), self.reading == PAUSED or bool(self._up)

    def identity(self) -> str:
        return self._transport.channel.identity()

    def accepts_packets(self) -> bool:
        return True

    def on_packet(self, packet: packets.Packet) -> None:
        self._core.metrics.from_client[packet.kind if packet.kind <= packets.DRAIN else 7] += 1
        match packet:
            case packets.DialRequest():
                self._on_dial(packet)
            case packets.CloseRequest():
                self._on_close(packet.connection_id)
            case packets.CloseDial():
                self._on_cancel()
            case packets.Data():
                self._on_data(packet.connection_id, memoryview(packet.payload))
            case _:
                pass

    def on_payload(self, connection_id: int, view: memoryview) -> None:
        self._core.metrics.from_client[packets.DATA] += 1
        self._on_data(connection_id, view)

    def _on_dial(self, request: packets.DialRequest) -> None:
        if self._state != _FRESH:
            # One stream is one tunnel; a second dial would leave the first without a client.
            message = packets.encode_dial_response("this stream has dialled already", 0, request.dial_id)
            self._send(packets.DIAL_RSP, message)
            return
        self._state = _DIALLING
        self.tunnel = Tunnel(self, request.dial_id, request.address, self._loop.now)
        self._core.dial(self.tunnel, request.protocol)

    def _on_cancel(self) -> None:
        tunnel = self.tunnel
        if tunnel is not None and self._state in (_DIALLING, _OPEN):
            self._report(tunnel, "dial cancelled by the client")
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
                self._report(tunnel, "client closed before the dial was answered")
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
        """DATA or CLOSE for a connection of another stream. Upstream closes both at the agent, so that any client can
        close another client's tunnel; we close only its own (fault foreign-connection)."""
        tunnel = self.tunnel
        assert tunnel is not None
        text = "mismatched connection IDs"
        self._report(tunnel, text)
        self._state = _CLOSING
        self._send_close(tunnel.connection_id, text)
        self._send_close(connection_id, text)
        self._end_tunnel(tunnel)

    def _forward(self, view: memoryview) -> None:
        if self._up or self.reading == PAUSED:
            self._up += view
            return
        inlet = self._up_inlet
        assert inlet is not None
        taken = inlet.write(view)
        if taken < len(view):
            self._up += view[taken:]

    def on_room(self, inlet: Inlet) -> None:
        if inlet is self._up_inlet:
            self._push_up()
        else:
            self._push_down()

    def _push_up(self) -> None:
        inlet = self._up_inlet
        if inlet is None or inlet.waiting or self.reading == PAUSED or not self._up:
            return
        if self._state not in (_OPEN, _CLOSING):
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
        """The client used so much of its window; it is given back when nothing waits."""
        self._held_credit += size
        if not self._up and self._held_credit:
            self._transport.connection.credit(self._stream, self._held_credit)
            self._held_credit = 0
            if not self._transport.connection.outbox.is_empty():
                self._transport.touch()

    def _read_more(self) -> None:
        self._push_up()

    def opened(self, tunnel: Tunnel) -> None:
        agent = self._core.agent_of(tunnel)
        metrics, connection_id = self._core.metrics, tunnel.connection_id
        own = agent.own_stream(connection_id, self)
        self._attach(own, agent.shared_credit)
        stream = agent.stream if own is None else own.stream
        up = self._up_inlet = Inlet(self, agent.transport, stream, connection_id, metrics.to_agent)
        up.unanswered = own
        self._down_inlet = Inlet(self, self._transport, self._stream, connection_id, metrics.to_client)
        self._stream.served = True
        self._state = _OPEN
        self._opened_turn = self._loop.turns
        self._send(packets.DIAL_RSP, packets.encode_dial_response("", tunnel.connection_id, tunnel.dial_id))

    def refused(self, failure: DialFailure) -> None:
        tunnel = self.tunnel
        assert tunnel is not None
        self._stream.served = True
        self._state = _OVER
        message = packets.encode_dial_response(grpc_error_text(failure), 0, tunnel.dial_id)
        self._send(packets.DIAL_RSP, message)

    def deliver(self, view: memoryview) -> None:
        size = len(view)
        self.bytes_to_client += size
        taken = 0
        if self._down or self._opened_turn == self._loop.turns:
            # konnectivity-client registers the connection only after it has read DIAL_RSP (fault answer-with-data).
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
        if len(self._down) > self._pause_above and self._state != _OVER:
            self._hold_back(len(self._down))

    def _pause_sender(self) -> bool:
        return self.tunnel is not None and self._core.pause_sender(self.tunnel)

    def _resume_sender(self) -> None:
        if self.tunnel is not None:
            self._core.resume_sender(self.tunnel)

    def on_stalled(self, waiting: int) -> None:
        notices.client_stalled(self.tunnel, waiting)

    def on_stuck(self) -> None:
        tunnel = self.tunnel
        if tunnel is None or self._state == _OVER:
            return
        limit = self._limits.tunnel_buffer_bytes
        text = f"client reads nothing: more than {limit} bytes waited {STUCK_SECONDS:g} s"
        self._core.client_stuck(tunnel, text)
        self._give_up(tunnel, text)

    def end_idle(self, cause: str) -> None:
        if self.tunnel is not None and self._state == _OPEN:
            self._report(self.tunnel, cause)
            self._give_up(self.tunnel, cause)

    def _give_up(self, tunnel: Tunnel, text: str) -> None:
        self._state = _CLOSING
        self._down.clear()
        self._send_close(tunnel.connection_id, text)
        self._end_tunnel(tunnel)

    def _ask_again(self) -> None:
        """Send what waits for the client in the next turn, unless it is queued for room anyway."""
        inlet = self._down_inlet
        if inlet is not None and not inlet.waiting:
            self._loop.again(self)

    def on_again(self) -> None:
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

    def peer_ended(self) -> None:
        """Proxy streams have no half-close: the whole tunnel is over."""
        if self.tunnel is not None:
            self._end_tunnel(self.tunnel)

    def peer_reset(self, code: int) -> None:
        if self.tunnel is not None:
            self._core.stream_lost(self.tunnel, code)

    def _end_tunnel(self, tunnel: Tunnel) -> None:
        """Close it at the agent; `closed` follows."""
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
        self._drop_backlog()
        self._up.clear()
        self.credit(0)
        farewell = packets.encode_close_response(error, tunnel.connection_id)
        if self._opened_turn == self._loop.turns:
            # In the same flush as DIAL_RSP the client does not know the connection yet, and would wait for ever.
            self._farewell = farewell
            self._ask_again()
        elif self._down:
            self._farewell = farewell
        else:
            self._say_farewell(farewell)

    def _say_farewell(self, farewell: bytes) -> None:
        self._farewell = None
        self._give_back()
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
        """The client ended the stream or violated the protocol: answer with a status."""
        self.gone("client ended its stream" if status == grpc.OK else f"protocol violation: {text}")
        self._transport.finish(self._stream, status, text)

    def gone(self, cause: str) -> None:
        if self._clients.pop(self._stream.stream_id, None) is None:
            return
        self._core.proxy_streams -= 1
        self._up.clear()
        self._down.clear()
        self._farewell = None
        self._state = _OVER
        self._drop_backlog()
        self._give_back()
        tunnel = self.tunnel
        if tunnel is not None and tunnel.state != ENDED:
            self._report(tunnel, cause)
            self._end_tunnel(tunnel)

    def _report(self, tunnel: Tunnel, cause: str) -> None:
        self._core.report_tunnel(tunnel, cause)

    def on_crash(self, error: Exception) -> None:
        transport = self._transport
        if not transport.closed:
            transport.connection.sender.reset(self._stream, frames.INTERNAL_ERROR)
            transport.touch()
        self.abort_stream(frames.INTERNAL_ERROR)
        self.gone(f"internal error: {error!r}")
        if self.tunnel is not None:
            self._end_tunnel(self.tunnel)  # in case it was `gone` that raised
