"""A whole server in memory, with agents and clients that do what the input tells: no handler raises, nothing is left.

Input: steps of three parts: what to do (its highest bit: in the same turn as the next step), who, and what that needs.
Interpreted code only: it inherits from classes of the data plane.
"""

import logging
import random
import socket
import ssl
from collections.abc import Callable, Sized
from pathlib import Path
from typing import Final
from unittest import mock

from tests.fuzz.choices import Choices
from tests.fuzz.targets.http2 import next_frame
from tests.wire.http2.ends import BLOCK, frame, greeting

from umbilical.konnectivity import metadata
from umbilical.tunnel import loop as loop_module
from umbilical.tunnel.agent_transport import CONNECT_PATH, Admission, AgentTransport
from umbilical.tunnel.channel import Channel, ChannelOwner
from umbilical.tunnel.connect_frontend import HEAD_SECONDS, ConnectClient
from umbilical.tunnel.faults import Breakable
from umbilical.tunnel.grpc_frontend import GrpcTransport
from umbilical.tunnel.loop import Deadlines, Loop
from umbilical.tunnel.server_core import ServerCore
from umbilical.tunnel.settings import Limits, ListenAddress, ServerSettings, TlsFiles, UnixFrontend
from umbilical.tunnel.tls_channel import TlsChannel
from umbilical.wire import grpc, packets
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2 import frames
from umbilical.wire.http2.headers import encode_headers
from umbilical.wire.packet_data import OPENING_HEADERS

AGENT, SHARED_AGENT, STRANGER, GRPC_CLIENT, CONNECT_CLIENT, SECOND_CLIENT = range(6)
WHO: Final = 6
RAW, FRAME, PACKET, DIAL, ANSWER, DATA, CLOSE, END, LEAVE, READ, BULK, WAIT = range(12)
SAME_TURN: Final = 0x80
MOST_STEPS: Final = 64
MOST_TURNS: Final = 100
BULK_BYTES: Final = 16 * 1024
"""Payload of one frame; some of them fill a socket that nobody reads."""
SETTINGS: Final = ServerSettings(
    "s",
    UnixFrontend(Path("unused")),
    ListenAddress("", 0),
    TlsFiles(),
    dial_timeout_seconds=30.0,
    limits=Limits(tunnel_buffer_bytes=64 * 1024, pause_above_bytes=16 * 1024),
)


class VirtualTime:
    """Stands in for the module `time` in the loop: only a step of the input lets it pass."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


class WatchfulLoop(Loop):
    def crash(self, broken: Breakable, place: str, error: Exception) -> None:
        raise error


class AgentTls(ssl.SSLObject):
    def selected_alpn_protocol(self) -> str:
        return "h2"


AGENT_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
AGENT_TLS.sslobject_class = AgentTls


class OpenedTlsChannel(TlsChannel):
    """An agent's channel as it is after the handshake, but without encryption."""

    on_events = Channel.on_events
    receive_into = Channel.receive_into
    send = Channel.send
    add = Channel.add
    has_unsent = Channel.has_unsent
    push = Channel.push
    end_sending = Channel.end_sending
    close = Channel.close

    def start(self, owner: ChannelOwner) -> None:
        Channel.start(self, owner)
        owner.on_open()


class FormattingHandler(logging.Handler):
    """Every line can be written, and none tells of an internal error."""

    def emit(self, record: logging.LogRecord) -> None:
        assert record.levelno < logging.ERROR, record.getMessage()
        assert "internal error" not in record.getMessage()


class InputPeer:
    """The far end of one connection; it reads only when the input tells it to."""

    def __init__(self, who: int, sock: socket.socket) -> None:
        self.who: Final = who
        self.sock: Final = sock
        self.dials: list[int] = []
        """Dials that an agent has read and not answered."""
        self._next_stream = 3
        self._unread = bytearray()
        sock.setblocking(False)

    def send(self, octets: bytes) -> None:
        try:
            self.sock.send(octets)
        except OSError:
            pass  # full, or the server has closed it

    def message(self, message: bytes, stream_id: int = 1) -> None:
        self.send(frame(frames.DATA, 0, stream_id, grpc.message_prefix(len(message)) + message))

    def read(self) -> None:
        try:
            self._unread += self.sock.recv(1 << 20)
        except OSError:
            return
        while len(self._unread) >= 9:
            end = 9 + int.from_bytes(self._unread[:3])
            if len(self._unread) < end:
                return
            if self._unread[3] == frames.DATA and self.who in (AGENT, SHARED_AGENT):
                self._note_dial(bytes(self._unread[9 + grpc.PREFIX_BYTES : end]))
            del self._unread[:end]

    def _note_dial(self, message: bytes) -> None:
        try:
            packet = packets.decode_packet(message, 0, len(message))
        except ProtocolViolation:
            return  # payload of a tunnel
        if isinstance(packet, packets.DialRequest):
            self.dials.append(packet.dial_id)

    def answer(self, connection_id: int) -> None:
        """Answer the oldest dial; an agent with streams of tunnels opens one for it first."""
        if self.who == AGENT:
            connection_id = self._next_stream
            self._next_stream += 2
            self.send(frame(frames.HEADERS, frames.END_HEADERS, connection_id, encode_headers(OPENING_HEADERS)))
        dial_id = self.dials.pop(0) if self.dials else 0
        self.message(packets.encode_dial_response("", connection_id, dial_id))


class MemoryServer:
    """What `Server` has, without its listeners, certificates and process."""

    def __init__(self, clock: VirtualTime) -> None:
        self.clock: Final = clock
        self.loop: Final = WatchfulLoop()
        self.core: Final = ServerCore(self.loop, SETTINGS)
        self._heads: Final = Deadlines(self.loop, HEAD_SECONDS)
        self._peers: Final[dict[int, InputPeer]] = {}
        self._sockets: Final[list[socket.socket]] = []

    def peer(self, who: int) -> InputPeer:
        """Return this peer; one that is new or has left connects, and says what such a peer says first."""
        peer = self._peers.get(who)
        if peer is None or peer.sock.fileno() < 0:
            peer = self._peers[who] = InputPeer(who, self._accept(who))
            peer.send(_first_bytes(who))
        return peer

    def _accept(self, who: int) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._sockets.extend((ours, theirs))
        if who in (AGENT, SHARED_AGENT, STRANGER):
            transport = AgentTransport(OpenedTlsChannel(self.loop, ours, AGENT_TLS, None), self.core, Admission())
            self.core.transports.add(transport)
            self.core.handshakes.add(transport)
            transport.start()
        elif who == GRPC_CLIENT:
            GrpcTransport(Channel(self.loop, ours), self.core).start()
        else:
            ConnectClient(Channel(self.loop, ours), self.core, self._heads).start()
        return theirs

    def turn(self) -> None:
        for _ in range(MOST_TURNS):
            self.loop.turn(0.0)
            if not self.loop._again and not self.loop._dirty:
                return
        raise AssertionError("the server does not come to rest")

    def part(self) -> None:
        """All peers leave; then the server holds nothing of them."""
        for peer in self._peers.values():
            peer.sock.close()
        for _ in range(4):
            self.turn()
        core = self.core
        registry = core.registry
        counts = [registry.pending_count(), registry.established_count(), registry.closing_count(), core.proxy_streams]
        tables: list[Sized] = [core.transports, core.clients, core.agents, core.lingering, self.loop._handlers]
        deadlines: list[Sized] = [core.handshakes, core.flushing, core.stuck, core.half_closed, self._heads]
        assert [*counts, *map(len, tables), *map(len, deadlines)] == [0] * 14
        assert not core.is_ready()
        assert not any(self.loop.faults.counts.values())

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()
        self.loop.close()


def _first_bytes(who: int) -> bytes:
    if who in (AGENT, SHARED_AGENT):
        headers = grpc.request_headers(CONNECT_PATH, b"localhost", b"https", b"fuzz")
        headers += metadata.agent_hello_headers(f"agent{who}", "", None, streams=who == AGENT)
        return greeting() + frame(frames.HEADERS, frames.END_HEADERS, 1, encode_headers(headers))
    if who == GRPC_CLIENT:
        return greeting() + frame(frames.HEADERS, frames.END_HEADERS, 1, BLOCK)
    return b""


def target(data: bytes) -> None:
    logger, handler, chance = logging.getLogger("umbilical"), FormattingHandler(), random.getstate()
    before = logger.level, logger.propagate
    random.seed(0)
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        _serve(data)
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
        random.setstate(chance)


def _serve(data: bytes) -> None:
    clock = VirtualTime()
    with mock.patch.object(loop_module, "time", clock):
        server = MemoryServer(clock)
        try:
            _run(server, Choices(data))
            server.part()
        finally:
            server.close()


def _run(server: MemoryServer, choices: Choices) -> None:
    for _ in range(MOST_STEPS):
        if choices.is_empty():
            return
        what = choices.number()
        peer = server.peer(choices.number() % WHO)
        _STEPS[(what & ~SAME_TURN) % len(_STEPS)](peer, choices, server)
        if not what & SAME_TURN:
            server.turn()


def _raw(peer: InputPeer, choices: Choices, server: MemoryServer) -> None:
    peer.send(choices.counted())


def _frame(peer: InputPeer, choices: Choices, server: MemoryServer) -> None:
    peer.send(next_frame(choices))


def _packet(peer: InputPeer, choices: Choices, server: MemoryServer) -> None:
    peer.message(choices.counted(), choices.number() or 1)


def _dial(peer: InputPeer, choices: Choices, server: MemoryServer) -> None:
    number = choices.number()
    if peer.who >= CONNECT_CLIENT:
        peer.send(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: h\r\n\r\n" % number)
    else:
        peer.message(packets.encode_dial_request("tcp", "127.0.0.1:80", number))


def _answer(peer: InputPeer, choices: Choices, server: MemoryServer) -> None:
    peer.read()
    peer.answer(choices.number())


def _data(peer: InputPeer, choices: Choices, server: MemoryServer) -> None:
    number, payload = choices.number(), choices.counted()
    if peer.who >= CONNECT_CLIENT:
        peer.send(payload)
    elif peer.who == AGENT:
        peer.send(frame(frames.DATA, 0, number, payload))
    else:
        peer.message(packets.encode_data(number, payload))


def _close(peer: InputPeer, choices: Choices, server: MemoryServer) -> None:
    number = choices.number()
    if peer.who == GRPC_CLIENT:
        peer.message(packets.encode_close_request(number))
    else:
        peer.message(packets.encode_close_response("closed", number))


def _end(peer: InputPeer, choices: Choices, server: MemoryServer) -> None:
    try:
        peer.sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the server has closed it


def _leave(peer: InputPeer, choices: Choices, server: MemoryServer) -> None:
    peer.sock.close()


def _read(peer: InputPeer, choices: Choices, server: MemoryServer) -> None:
    peer.read()


def _bulk(peer: InputPeer, choices: Choices, server: MemoryServer) -> None:
    number, payload = choices.number(), bytes(BULK_BYTES)
    for _ in range(choices.number() % 16):
        if peer.who >= CONNECT_CLIENT:
            peer.send(payload)
        elif peer.who == AGENT:
            peer.send(frame(frames.DATA, 0, number, payload))
        else:
            peer.message(packets.encode_data(number, payload[: -2 * grpc.PREFIX_BYTES - 9]))


def _wait(peer: InputPeer, choices: Choices, server: MemoryServer) -> None:
    server.clock.seconds += choices.number() / 4


_STEPS: Final[tuple[Callable[[InputPeer, Choices, MemoryServer], None], ...]] = (
    _raw, _frame, _packet, _dial, _answer, _data, _close, _end, _leave, _read, _bulk, _wait,
)  # fmt: skip
"""By their numbers."""
