"""Clients of a run: one HTTP CONNECT connection for each tunnel, or gRPC connections with several tunnels."""

from typing import Final

from tests.simulation.http2_peer import Fields, Http2Peer
from tests.simulation.network import Network
from tests.simulation.sockets import SimListener
from tests.simulation.tunnels import Ending, TunnelRun, split
from tests.simulation.wire import Wire

from umbilical.wire import packets

PART_SECONDS: Final = 0.015
MESSAGE_BYTES: Final = 12_000


class ConnectCaller:
    def __init__(self, run: TunnelRun, listener: SimListener) -> None:
        self.run: Final = run
        self._network: Final = run.network
        self._head: bytearray | None = bytearray()
        self._unwritten = 0
        self._parts: Final = split(run.up, run.plan.parts, run.random)
        self.wire: Final = Wire(self._network.connect(listener), self, run.plan.client_pace)
        host, port = run.target
        request = f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
        early = self._parts.pop(0) if run.plan.early and run.plan.ending is not Ending.CANCEL else b""
        self.wire.write(request + early)
        if run.plan.ending in (Ending.CANCEL, Ending.LEAVE):
            self._network.after(run.plan.leaves_after, self._leave)

    def received(self, octets: bytes) -> None:
        head = self._head
        if head is None:
            if self.run.opened:
                self.run.at_client.take(octets)
                self._close_if_done()
            return
        head += octets
        end = head.find(b"\r\n\r\n")
        if end < 0:
            return
        self._head = None
        status = bytes(head[:end]).partition(b"\r\n")[0].decode()
        if " 200 " not in status:
            self.run.refusal = status
            return
        self.run.opened = True
        self._write_parts()
        if end + 4 < len(head):
            self.received(bytes(head[end + 4 :]))

    def _write_parts(self) -> None:
        self._unwritten = len(self._parts)
        for number, part in enumerate(self._parts):
            self._network.after(number * PART_SECONDS, self._write, part)
        self._network.after(len(self._parts) * PART_SECONDS, self._wrote_all)

    def _write(self, part: bytes) -> None:
        self._unwritten -= 1
        self.wire.write(part)

    def _wrote_all(self) -> None:
        if self.run.plan.ending is Ending.HALF:
            self.wire.end()
        self._close_if_done()

    def _close_if_done(self) -> None:
        run = self.run
        if run.plan.ending is not Ending.CLIENT or not run.opened or self._unwritten or run.client_end:
            return
        if run.at_client.count < len(run.down):
            return
        if self.wire.unsent():
            self._network.after(0.01, self._close_if_done)
            return
        self._over("closed")
        self.wire.close()

    def _leave(self) -> None:
        self._over("left")
        self.wire.close()

    def ended(self) -> None:
        self._over("the tunnel ended")
        self.wire.close()

    def failed(self, reason: str) -> None:
        self._over(reason)

    def _over(self, how: str) -> None:
        if not self.run.client_end:
            self.run.client_end = how


class _GrpcTunnel:
    def __init__(self, run: TunnelRun) -> None:
        self.run: Final = run
        self.connection_id = 0
        self.unwritten = 0


class GrpcCaller:
    """One connection with the tunnels of a group."""

    def __init__(self, network: Network, listener: SimListener, runs: list[TunnelRun]) -> None:
        self._network: Final = network
        self._tunnels: Final[dict[int, _GrpcTunnel]] = {}
        self._waiting = len(runs)
        self.peer: Final = Http2Peer(self)
        self.wire: Final = Wire(network.connect(listener), self.peer, runs[0].plan.client_pace)
        self.peer.greet(self.wire)
        start = runs[0].plan.starts_after
        for run in runs:
            network.after(max(0.0, run.plan.starts_after - start), self._dial, run)

    def _dial(self, run: TunnelRun) -> None:
        self._waiting -= 1
        if self.peer.is_over:
            run.client_end = "the connection was over before"
            return
        fields: Fields = [
            (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/ProxyService/Proxy"), (b":authority", b"x"),
            (b"content-type", b"application/grpc"), (b"te", b"trailers"),
            (b"user-agent", b"simulated/%d" % (run.plan.number % 3)),
            (b"x-filler", b"f" * run.random.choice((10, 1_500, 3_500)) + b"%d" % run.random.randrange(3)),
        ]  # fmt: skip
        stream_id = self.peer.open(fields, frozenset({b"user-agent", b"x-filler", b"content-type"}))
        self._tunnels[stream_id] = _GrpcTunnel(run)
        host, port = run.target
        request = packets.encode_dial_request("tcp", f"{host}:{port}", 5_000 + run.plan.number)
        self.peer.send_message(stream_id, request)
        if run.plan.ending in (Ending.CANCEL, Ending.LEAVE):
            self._network.after(run.plan.leaves_after, self._leave, stream_id, run)

    def _leave(self, stream_id: int, run: TunnelRun) -> None:
        if run.plan.ending is Ending.CANCEL:
            self.peer.send_message(stream_id, packets.encode_close_dial(5_000 + run.plan.number))
            self.peer.end(stream_id)
        else:
            self.peer.reset(stream_id)
        self._over(stream_id, "left")

    def on_message(self, stream_id: int, message: bytes) -> None:
        tunnel = self._tunnels.get(stream_id)
        if tunnel is None:
            return
        packet = packets.decode_packet(message, 0, len(message))
        if isinstance(packet, packets.DialResponse):
            self._answered(stream_id, tunnel, packet)
        elif isinstance(packet, packets.Data):
            tunnel.run.at_client.take(packet.payload)
            self._close_if_done(stream_id, tunnel)
        elif isinstance(packet, packets.CloseResponse):
            self.peer.end(stream_id)
            self._over(stream_id, f"CLOSE_RSP {packet.error}")

    def _answered(self, stream_id: int, tunnel: _GrpcTunnel, answer: packets.DialResponse) -> None:
        if answer.error:
            tunnel.run.refusal = answer.error
            self.peer.end(stream_id)
            self._over(stream_id, "refused")
            return
        tunnel.run.opened = True
        tunnel.connection_id = answer.connection_id
        parts = split(tunnel.run.up, tunnel.run.plan.parts, tunnel.run.random)
        tunnel.unwritten = len(parts)
        for number, part in enumerate(parts):
            self._network.after(number * PART_SECONDS, self._write, stream_id, tunnel, part)

    def _write(self, stream_id: int, tunnel: _GrpcTunnel, part: bytes) -> None:
        tunnel.unwritten -= 1
        for at in range(0, len(part), MESSAGE_BYTES):
            message = packets.encode_data(tunnel.connection_id, part[at : at + MESSAGE_BYTES])
            self.peer.send_message(stream_id, message)
        self._close_if_done(stream_id, tunnel)

    def _close_if_done(self, stream_id: int, tunnel: _GrpcTunnel) -> None:
        run = tunnel.run
        if run.plan.ending is Ending.CLIENT and not tunnel.unwritten and run.at_client.count >= len(run.down):
            self.peer.send_message(stream_id, packets.encode_close_request(tunnel.connection_id))

    def on_fields(self, stream_id: int, fields: Fields, ended: bool) -> None:
        if ended:
            self._over(stream_id, "trailers")

    def on_stream_over(self, stream_id: int, reason: str) -> None:
        self._over(stream_id, reason)

    def on_connection_over(self, reason: str) -> None:
        for stream_id in list(self._tunnels):
            self._over(stream_id, reason)

    def _over(self, stream_id: int, how: str) -> None:
        tunnel = self._tunnels.pop(stream_id, None)
        if tunnel is not None and not tunnel.run.client_end:
            tunnel.run.client_end = how
        if not self._tunnels and not self._waiting:
            self._network.after(0.1, self.wire.close)
