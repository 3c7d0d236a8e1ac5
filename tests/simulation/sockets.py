"""Simulated sockets: bounded buffers, short sends, FIN, RST and half-close, in the way of Linux.

What is sent is under way in a queue of the receiver, and arrives in order. The two buffers of a real connection are one
here: the receiver's capacity counts what is under way too.
"""

import errno
import os
import select
import socket
from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.simulation.network import Network
    from tests.simulation.poller import Poller

Target = tuple[str, int]

_FIN: Final = 1
_RST: Final = 2
_GONE: Final = 3
"""The close of a Unix socket, which its peer sees at once."""
CAPACITY_BYTES: Final = 64 * 1024
USUAL_DELAY_SECONDS: Final = 0.0004


class SimulatedBug(RuntimeError):
    """Raised in place of a callback, to see what else it breaks."""


class Line:
    """One direction of a connection, as the network treats it."""

    def __init__(self, random: Random) -> None:
        self.random: Final = random
        self.delay_seconds = USUAL_DELAY_SECONDS
        self.jitter_seconds = USUAL_DELAY_SECONDS
        self.stalled_until = 0.0
        self.is_dead = False
        """Nothing arrives any more, and nobody is told."""
        self.single_bytes = 0
        """How many of the next bytes arrive one at a time."""
        self.arrives_at = 0.0
        """When the last piece under way arrives: the next one is not earlier."""

    def delay(self) -> float:
        return self.delay_seconds + self.random.random() * self.jitter_seconds

    def pieces(self, octets: bytes) -> list[bytes]:
        single = min(self.single_bytes, len(octets))
        self.single_bytes -= single
        pieces = [octets[at : at + 1] for at in range(single)]
        rest = octets[single:]
        if len(rest) > 1 and self.random.random() < 0.1:
            cut = self.random.randrange(1, len(rest))
            return [*pieces, rest[:cut], rest[cut:]]
        return [*pieces, rest] if rest else pieces


class SimSocket:
    def __init__(self, network: "Network", family: int, process: str, number: int) -> None:
        self.network: Final = network
        self.family: Final = family
        self.process: Final = process
        self.number: Final = number
        self.line = network.line(number)
        """Towards this socket."""
        self.capacity = CAPACITY_BYTES
        self.remote: Target = ("10.1.0.1", 30_000 + number)
        self.poller: Poller | None = None
        self.on_edge: Any = None
        """A function, for an actor without a loop."""
        self.closed = False
        self.peer: SimSocket | None = None
        self.buffer = bytearray()
        self._way: Final[deque[bytes | int]] = deque()
        self._way_bytes = 0
        self._eof = False
        self._gone = False
        self._broken = False
        self._error = 0
        self._fin_sent = False
        self._peer_waits = False
        """The peer found no room and is told when there is some."""
        self._linger_not = False
        self._told = False
        self._read_turn = -1
        self._reads = 0
        self._descriptor: Final = network.descriptor(self)

    def join(self, peer: "SimSocket") -> None:
        self.peer, peer.peer = peer, self

    def fileno(self) -> int:
        return -1 if self.closed else self._descriptor

    def setblocking(self, flag: bool) -> None:
        pass

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        if level == socket.SOL_SOCKET and option == socket.SO_LINGER:
            self._linger_not = True

    def getsockopt(self, level: int, option: int, size: int = 0) -> int | bytes:
        if level == socket.SOL_SOCKET and option == socket.SO_ERROR:
            code, self._error = self._error, 0
            return code
        raise OSError(errno.ENOPROTOOPT, "Protocol not available")

    def getpeername(self) -> Target | str:
        return self.remote if self.family != socket.AF_UNIX else ""

    def connect_ex(self, target: Target) -> int:
        self.remote = target
        self.network.dial(self, target)
        return errno.EINPROGRESS

    def connected(self) -> None:
        self._edge(select.EPOLLOUT)

    def refused(self, code: int) -> None:
        self._error = code
        self._broken = True
        self._edge(select.EPOLLERR)

    def room(self) -> int:
        """What the peer may still send."""
        return self.capacity - self._way_bytes - len(self.buffer)

    def mask(self) -> int:
        mask = 0
        if self._error:
            mask |= select.EPOLLERR | select.EPOLLIN | select.EPOLLOUT
        if self.buffer or self._eof or self._broken:
            mask |= select.EPOLLIN
        if self._eof or self._broken:
            mask |= select.EPOLLRDHUP
        if self._broken or self._gone or (self._eof and self._fin_sent):
            mask |= select.EPOLLHUP
        if self.peer is not None and (self._broken or self.peer.room() >= self.peer.capacity // 3):
            mask |= select.EPOLLOUT
        return mask

    def _edge(self, mask: int) -> None:
        if self.poller is not None:
            self.poller.edge(self._descriptor, mask)
        elif self.on_edge is not None and not self._told:
            self._told = True
            self.network.after(0.0, self._tell)

    def _tell(self) -> None:
        self._told = False
        if not self.closed and self.on_edge is not None:
            self.on_edge()

    def _check_open(self) -> None:
        if self.closed:
            raise OSError(errno.EBADF, "Bad file descriptor")

    def send(self, view: bytes | bytearray | memoryview) -> int:
        self._check_open()
        if self._error:
            code, self._error = self._error, 0
            raise OSError(code, os.strerror(code))
        if self._broken or self._gone or self._fin_sent:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        peer = self.peer
        assert peer is not None
        room = peer.room()
        if room < len(view):
            peer._peer_waits = True
            if room <= 0:
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        octets = bytes(view[:room])
        self.network.note(b"send", self.number, len(octets), octets)
        peer._way_bytes += len(octets)
        for piece in peer.line.pieces(octets):
            peer._under_way(piece)
        return len(octets)

    def _under_way(self, what: bytes | int) -> None:
        line, network = self.line, self.network
        line.arrives_at = max(line.arrives_at, network.now + line.delay())
        self._way.append(what)
        network.at(line.arrives_at, self._arrive)

    def _arrive(self) -> None:
        line, network = self.line, self.network
        if line.is_dead or not self._way:
            return
        if network.now < line.stalled_until:
            line.arrives_at = max(line.arrives_at, line.stalled_until)
            network.at(line.stalled_until, self._arrive)
            return
        what = self._way.popleft()
        if isinstance(what, int):
            self._signal(what)
            return
        self._way_bytes -= len(what)
        if self.closed:
            self._refuse_bytes()
            return
        self.buffer += what
        self._edge(select.EPOLLIN)

    def _signal(self, what: int) -> None:
        if self.closed or self._broken:
            return
        if what == _RST:
            self.break_off()
            return
        self._eof = True
        self._gone = self._gone or what == _GONE
        self._edge(select.EPOLLIN | select.EPOLLRDHUP | (select.EPOLLHUP if what == _GONE else 0))

    def _refuse_bytes(self) -> None:
        """Bytes for a closed socket: its kernel answers with a reset."""
        if self.peer is not None and not self.peer.closed:
            self.peer._under_way(_RST)

    def break_off(self) -> None:
        """A reset has arrived; what came before it can still be read."""
        if not self.closed and not self._broken:
            self._broken = True
            self._error = errno.ECONNRESET
            self._edge(select.EPOLLERR)

    def cut(self) -> None:
        """Both ends get a reset now; what is under way is lost."""
        for end in (self, self.peer):
            if end is not None:
                end._way.clear()
                end._way_bytes = 0
                end.break_off()

    def recv_into(self, view: memoryview) -> int:
        self._count_read()
        if not self.buffer:
            return self._nothing()
        count = min(len(view), len(self.buffer))
        view[:count] = self.buffer[:count]
        self._consumed(count)
        return count

    def recv(self, most: int) -> bytes:
        if not self.buffer:
            self._nothing()
            return b""
        octets = bytes(self.buffer[:most])
        self._consumed(len(octets))
        return octets

    def _nothing(self) -> int:
        self._check_open()
        if self._error:
            code, self._error = self._error, 0
            raise OSError(code, os.strerror(code))
        if self._eof or self._broken:
            return 0
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    def _consumed(self, count: int) -> None:
        self._check_open()
        del self.buffer[:count]
        network = self.network
        network.bytes_received += count
        network.note(b"recv", self.number, count)
        if self._peer_waits and self.room() >= self.capacity // 3 and self.peer is not None:
            self._peer_waits = False
            network.after(self.line.delay(), self.peer._edge, select.EPOLLOUT)

    def _count_read(self) -> None:
        network = self.network
        if self._read_turn != network.turn:
            self._read_turn = network.turn
            self._reads = 0
        self._reads += 1
        if self._reads > network.most_reads_per_turn.get(self.number, 0):
            network.most_reads_per_turn[self.number] = self._reads

    def shutdown(self, how: int) -> None:
        self._check_open()
        if self._broken or self._gone:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        self._end(_FIN)

    def _end(self, what: int) -> None:
        if self._fin_sent and what == _FIN:
            return
        self._fin_sent = True
        self.network.note(b"end", self.number, what)
        if self.peer is not None and not self.peer.closed:
            self.peer._under_way(what)

    def close(self) -> None:
        if self.closed:
            return
        if not self._broken and not self._gone:
            self._say_closed()
        self.closed = True
        if self.poller is not None:
            self.poller.forget(self._descriptor)
        self.network.release(self._descriptor)

    def _say_closed(self) -> None:
        if self.buffer or self._linger_not:
            self._end(_RST)
        else:
            self._end(_GONE if self.family == socket.AF_UNIX else _FIN)


class SimListener:
    """Level-triggered, with a backlog."""

    def __init__(self, network: "Network", family: int, process: str, port: int) -> None:
        self.network: Final = network
        self.family: Final = family
        self.process: Final = process
        self.port: Final = port
        self.poller: Poller | None = None
        self.closed = False
        self._backlog: Final[deque[SimSocket]] = deque()
        self._descriptor: Final = network.descriptor(self)

    def fileno(self) -> int:
        return self._descriptor

    def getsockname(self) -> Target:
        return "10.0.0.1", self.port

    def mask(self) -> int:
        return select.EPOLLIN if self._backlog else 0

    def arrived(self, sock: SimSocket) -> None:
        if self.closed:
            sock.cut()
            sock.close()
        else:
            self._backlog.append(sock)

    def _accept(self) -> tuple[int, None]:
        if self.network.is_exhausted():
            raise OSError(errno.EMFILE, "Too many open files")
        if not self._backlog:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        sock = self._backlog.popleft()
        self.network.note(b"accept", sock.number, 0)
        return sock.fileno(), None

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            for sock in self._backlog:
                sock.cut()
                sock.close()
            self._backlog.clear()
            if self.poller is not None:
                self.poller.forget(self._descriptor)
            self.network.release(self._descriptor)
