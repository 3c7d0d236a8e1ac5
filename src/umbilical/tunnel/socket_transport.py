"""asyncio's transport for a connected socket, served by our event loop without a callback of asyncio per event.

It exists after one call: no waiting for `connection_made`, and no question to the kernel for names nobody needs. On
another event loop, such as that of a program that uses the dialer, the socket gets asyncio's own transport.
"""

import asyncio
import select
import socket
from asyncio.trsock import TransportSocket
from collections.abc import Callable
from typing import Any, Final

from umbilical.tunnel.event_loop import EventLoop
from umbilical.tunnel.loop import HANGUP, IN, OUT

READ_BYTES: Final = 256 * 1024
"""As much as asyncio reads at once."""
BUFFER_BYTES: Final = 64 * 1024
"""asyncio's default for `set_write_buffer_limits`."""
_INPUT: Final = IN | select.EPOLLRDHUP | select.EPOLLET


async def open_transport(
    sock: socket.socket, protocol: asyncio.BaseProtocol, peername: Any = None
) -> asyncio.Transport:
    """Take over a connected, non-blocking socket; `peername` saves a question to the kernel. Raises OSError."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, EventLoop):
        return SocketTransport(loop, sock, protocol, peername)
    transport, _ = await loop.create_connection(lambda: protocol, sock=sock)
    return transport


class SocketTransport(asyncio.Transport):
    """Edge-triggered: what one event does not read is read in the loop's next turn, so that sockets take turns."""

    # asyncio requires this attribute of a transport for `start_tls`.
    _start_tls_compatible: Final = True

    def __init__(self, loop: EventLoop, sock: socket.socket, protocol: asyncio.BaseProtocol, peername: Any) -> None:
        super().__init__()
        self._loop: Final = loop
        self._sock: Final = sock
        self._descriptor: Final = sock.fileno()
        self._peername: Final = peername
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)
        self._buffer: Final = bytearray()
        self._high, self._low = BUFFER_BYTES, BUFFER_BYTES // 4
        self._protocol_pauses = False
        self._watches_output = False
        self._reading_paused = False
        self._unread = False
        """Input was left in the socket: no further event reports it."""
        self._hung_up = False
        """The peer has ended its side: no event follows the last bytes."""
        self._ended = False
        """The end of the input was delivered."""
        self._end_after_buffer = False
        self._closing = False
        self._lost = False
        loop.watch(self._descriptor, _INPUT, self._ready)
        try:
            protocol.connection_made(self)
        except BaseException:
            loop.unwatch(self._descriptor)
            raise

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        try:
            if name == "socket":
                return TransportSocket(self._sock)
            if name == "peername":
                return self._peername or self._sock.getpeername()
            if name == "sockname":
                return self._sock.getsockname()
        except OSError:
            pass
        return default

    def is_reading(self) -> bool:
        return not self._closing and not self._reading_paused

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused and not self._closing:
            self._reading_paused = False
            if self._unread:
                self._loop.call_soon(self._read)

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = BUFFER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low
        self._pause_protocol()

    def can_write_eof(self) -> bool:
        return True

    def _ready(self, mask: int) -> None:
        if mask & HANGUP:
            self._hung_up = True
        if mask & (IN | HANGUP):
            self._unread = True
            if not self._reading_paused:
                self._read()
        if self._buffer and mask & (OUT | HANGUP):
            self._send_buffer()

    def _read(self) -> None:
        """Read once and deliver; called again in the loop's next turn while more may be there."""
        if self._closing or self._ended or self._reading_paused or not self._unread:
            return
        protocol: Any = self._protocol
        octets = b""
        try:
            if self._is_buffered:
                room = memoryview(protocol.get_buffer(-1))
                size, count = len(room), self._sock.recv_into(room)
            else:
                octets = self._sock.recv(READ_BYTES)
                size, count = READ_BYTES, len(octets)
        except BlockingIOError:
            self._unread = False
            return
        except OSError as error:
            self._force_close(error)
            return
        except Exception as error:  # of the protocol
            self._report(error)
            self._force_close(error)
            return
        self._unread = count == size or (self._hung_up and count > 0)
        try:
            if not count:
                self._ended = True
                if not protocol.eof_received():
                    self.close()
            elif self._is_buffered:
                protocol.buffer_updated(count)
            else:
                protocol.data_received(octets)
        except Exception as error:
            self._report(error)
            self._force_close(error)
        if self._unread and not self._reading_paused:
            self._loop.call_soon(self._read)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._end_after_buffer:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data or self._lost:
            return
        sent = 0
        if not self._buffer:
            try:
                sent = self._sock.send(data)
            except BlockingIOError:
                pass
            except OSError as error:
                self._force_close(error)
                return
            if sent == len(data):
                return
            self._watch_output()
        self._buffer.extend(memoryview(data)[sent:])
        self._pause_protocol()

    def _watch_output(self) -> None:
        """Not from the start: a Unix socket would report it at every read."""
        if not self._watches_output:
            self._watches_output = True
            self._loop.modify_watch(self._descriptor, _INPUT | OUT)

    def _send_buffer(self) -> None:
        try:
            while self._buffer:
                del self._buffer[: self._sock.send(self._buffer)]
        except BlockingIOError:
            pass
        except OSError as error:
            self._force_close(error)
            return
        if not self._buffer and self._end_after_buffer:
            self._end_output()
        if self._protocol_pauses and len(self._buffer) <= self._low:
            self._protocol_pauses = False
            self._tell(self._protocol.resume_writing)
        if self._closing and not self._buffer:
            self._lose(None)

    def _pause_protocol(self) -> None:
        if len(self._buffer) > self._high and not self._protocol_pauses:
            self._protocol_pauses = True
            self._tell(self._protocol.pause_writing)

    def _tell(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._report(error)

    def write_eof(self) -> None:
        if self._closing or self._end_after_buffer:
            return
        self._end_after_buffer = True
        if not self._buffer:
            self._end_output()

    def _end_output(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the peer is gone: reading reports it

    def close(self) -> None:
        """Unsent data is sent first."""
        if self._closing:
            return
        self._closing = True
        if not self._buffer:
            self._lose(None)

    def abort(self) -> None:
        self._force_close(None)

    def _force_close(self, exc: BaseException | None) -> None:
        """asyncio's TLS calls it when its handshake fails."""
        self._closing = True
        self._buffer.clear()
        self._lose(exc)

    def _lose(self, exc: BaseException | None) -> None:
        if not self._lost:
            self._lost = True
            self._loop.unwatch(self._descriptor)
            self._loop.call_soon(self._end, exc)

    def _end(self, exc: Any) -> None:
        """The protocol may still read the socket for the peer's reason."""
        try:
            self._protocol.connection_lost(exc)
        finally:
            self._sock.close()

    def _report(self, error: Exception) -> None:
        text = "internal error in the protocol of a connection"
        self._loop.call_exception_handler({"message": text, "exception": error, "protocol": self._protocol})
