"""The dialer's own view of its certificates: watched as a server's and an agent's are, on asyncio's clock."""

import asyncio
import ssl
import time
from functools import partial
from typing import Final

from umbilical.dialer.settings import DialerSettings, Protocol, TcpServer
from umbilical.tunnel import tls
from umbilical.tunnel.certificates import Use, WatchedContext
from umbilical.tunnel.loop import Handler, Timer
from umbilical.tunnel.metrics import CertificateMetrics
from umbilical.tunnel.settings import TlsFiles

ROLE: Final = "client"
UNUSABLE: Final = "UMB512"


class AsyncioClock:
    """Fulfils `certificates.Clock`; timers need a running loop, the time does not."""

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
    """None where every server is a Unix socket. Raises StartupError (UMB020 to UMB022) for files that do not fit."""
    if not any(isinstance(server, TcpServer) for server in settings.servers):
        return None
    alpn = ("h2",) if settings.protocol is Protocol.GRPC else ()
    use = Use(ROLE, UNUSABLE, settings.tls, partial(_build, settings.tls, alpn))
    return WatchedContext(AsyncioClock(), use, metrics)


def _build(files: TlsFiles, alpn: tuple[str, ...]) -> ssl.SSLContext:
    context = tls.connecting_context(files, alpn, "client")
    # A write could want to read first in a TLS 1.2 connection that is negotiated anew; nobody needs that.
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context
