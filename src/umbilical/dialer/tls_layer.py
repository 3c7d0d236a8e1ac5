"""TLS over a socket with half-close: either direction can end alone; ours ends with close_notify and FIN.

OpenSSL works on two memory buffers. The incoming one is always read empty first: SSL_shutdown would discard a record
that is left in it, and break the connection. The dialer's certificate files are watched as a server's and an agent's.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from umbilical.dialer.failure import TunnelLost
from umbilical.dialer.reach import words_of
from umbilical.dialer.settings import DialerSettings, Protocol, TcpServer
from umbilical.dialer.streams import Layer
from umbilical.tunnel import tls
from umbilical.tunnel.certificates import CertificateUse, WatchedContext
from umbilical.tunnel.loop import Handler, Timer
from umbilical.tunnel.metrics import CertificateMetrics
from umbilical.tunnel.settings import TlsFiles
from umbilical.tunnel.tls import tls_reason

CIPHER_BYTES: Final = 256 * 1024
PLAIN_BYTES: Final = 256 * 1024
SALVAGED_READS: Final = 4
ENCRYPTED_AT_ONCE: Final = 256 * 1024


class Scratch:
    """Read buffers: an event loop reads one socket at a time, so all connections share one."""

    def __init__(self) -> None:
        self.cipher: Final = memoryview(bytearray(CIPHER_BYTES))
        self.plain: Final = memoryview(bytearray(PLAIN_BYTES))


class TlsLayer(Layer):
    def __init__(
        self, context: ssl.SSLContext, server_name: str, session: ssl.SSLSession | None, scratch: Scratch
    ) -> None:
        super().__init__()
        self._scratch: Final = scratch
        self._incoming: Final = ssl.MemoryBIO()
        self._outgoing: Final = ssl.MemoryBIO()
        name = tls.tls_name(server_name)
        self.tls: Final = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name, session=session)
        # Given a buffer, SSLObject.read returns a count; its published type knows only the other form.
        self._read: Final = cast(Callable[[int, memoryview], int], self.tls.read)
        self._handshake: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        self._write_ended = False
        self.server = ""
        """Name of the server once the tunnel is open; named in the error when the connection is lost."""

    async def shake_hands(self) -> None:
        """Raises ssl.SSLError, or OSError when the server disconnects."""
        await self._handshake

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.tls if name == "ssl_object" else super().get_extra_info(name, default)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)
        self._step_handshake()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch.cipher

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended:
            return  # after close_notify there is no data, and nothing would empty the buffer
        self._incoming.write(self._scratch.cipher[:nbytes])
        if self._handshake.done():
            self._read_all()
        else:
            self._step_handshake()

    def eof_received(self) -> bool:
        """Return True: our own direction stays open."""
        self._incoming.write_eof()
        if self._handshake.done():
            self._read_all()
        else:
            self._fail_handshake(ConnectionResetError("the server closed the connection"))
        return not self._closing

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and not self._closing:
            self._salvage()
        if not self._handshake.done():
            self._fail_handshake(exc or ConnectionResetError("the server closed the connection"))
        self._notify_loss(exc and self._blamed(exc))

    def _salvage(self) -> None:
        """Read a pending alert after a failed write: it may hold the server's reason.

        asyncio closes the socket after this call. A layer below has already done the same.
        """
        if isinstance(self._below, Layer):
            return
        descriptor = self.get_extra_info("socket").fileno()
        for _ in range(SALVAGED_READS):
            try:
                octets = os.read(descriptor, CIPHER_BYTES)
            except OSError:
                return
            if not octets:
                return
            self._incoming.write(octets)
            if self._handshake.done():
                self._read_all()
            else:
                self._step_handshake()

    def _step_handshake(self) -> None:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._push()
            return
        except ssl.SSLError as error:
            self._push()  # the alert with the reason
            self._fail_handshake(error)
            return
        self._push()
        if not self._handshake.done():
            self._handshake.set_result(None)
        self._read_all()

    def _fail_handshake(self, error: Exception) -> None:
        self._closing = True
        if not self._handshake.done():
            self._handshake.set_exception(error)
        if self._below is not None:
            self._below.close()

    def _read_all(self) -> None:
        plain = self._scratch.plain
        while not self._ended and not self._lost:
            try:
                count = self._read(PLAIN_BYTES, plain)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                count = 0
            except ssl.SSLError as error:  # an alert, or an end without close_notify: that is truncation
                self._break(error)
                return
            if count == 0:
                self._notify_end()
            else:
                self._deliver(plain[:count])
        self._push()

    def _blamed(self, error: Exception) -> Exception:
        if not self.server:
            return error
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
            return TunnelLost(self.server, words_of(error))
        return TunnelLost(self.server, tls_reason(error))

    def _break(self, error: Exception) -> None:
        self._push()
        self._notify_loss(self._blamed(error))
        if self._below is not None:
            self._below.abort()

    def _push(self) -> None:
        """Send what OpenSSL has written; after our FIN it is discarded."""
        if self._outgoing.pending:
            octets = self._outgoing.read()
            if self._below is not None and not self._write_ended:
                self._below.write(octets)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._write_ended:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing or not data:
            return
        view = memoryview(data)
        start = 0
        while start < len(view):
            start += self.tls.write(view[start : start + ENCRYPTED_AT_ONCE])
            self._push()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self._write_ended or self._closing:
            return
        self._end_writing()
        assert self._below is not None
        self._below.write_eof()

    def _end_writing(self) -> None:
        try:
            self.tls.unwrap()
        except (ssl.SSLError, OSError):
            pass  # it expects the server's close_notify, which we do not wait for
        self._push()
        self._write_ended = True

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._write_ended:
            self._end_writing()
        assert self._below is not None
        self._below.close()


ROLE: Final = "client"
UNUSABLE: Final = "UMB512"


class AsyncioClock:
    """Implements `certificates.Clock`; timers need a running loop, `now` does not."""

    def __init__(self) -> None:
        self._handles: Final[dict[Timer, asyncio.TimerHandle]] = {}

    @property
    def now(self) -> float:
        return time.monotonic()

    def after(self, seconds: float, handler: Handler) -> Timer:
        timer = Timer(handler)
        self._handles[timer] = asyncio.get_running_loop().call_later(seconds, self._fire, timer)
        return timer

    def cancel(self, timer: Timer) -> None:
        timer.handler = None
        handle = self._handles.pop(timer, None)
        if handle is not None:
            handle.cancel()

    def _fire(self, timer: Timer) -> None:
        self._handles.pop(timer, None)
        handler = timer.handler
        if handler is not None:
            timer.handler = None
            handler.on_timer()


def watched_context(settings: DialerSettings, metrics: CertificateMetrics) -> WatchedContext | None:
    """Return None if every server is a Unix socket. Raises StartupError (UMB020 to UMB022) for invalid files."""
    if not any(isinstance(server, TcpServer) for server in settings.servers):
        return None
    alpn = ("h2",) if settings.protocol is Protocol.GRPC else ()
    use = CertificateUse(ROLE, UNUSABLE, settings.tls, partial(_build, settings.tls, alpn))
    return WatchedContext(AsyncioClock(), use, metrics)


def _build(files: TlsFiles, alpn: tuple[str, ...]) -> ssl.SSLContext:
    context = tls.connecting_context(files, alpn, "client")
    # With TLS 1.2 renegotiation a write could need a read first.
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context
