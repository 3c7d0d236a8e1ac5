"""Connections to endpoints through the servers of one tunnel: the first that can does it.

One dialer belongs to one event loop. It opens one connection per dial, as kube-apiserver does; nothing is pooled.
"""

import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from umbilical.dialer.connect import authority_of
from umbilical.dialer.failure import DialFailed, Reason
from umbilical.dialer.opener import Streams
from umbilical.dialer.settings import DialerSettings
from umbilical.dialer.tls_layer import Scratch
from umbilical.dialer.trace import Trace
from umbilical.dialer.trust import watched_context
from umbilical.dialer.way import Way
from umbilical.tunnel.metrics import CertificateMetrics

logger = logging.getLogger(__name__)

SET_ASIDE_SECONDS: Final = 10.0
"""A server that failed is tried behind the others for so long."""
ANOTHER_MAY: Final = frozenset({Reason.SERVER, Reason.TLS, Reason.NO_AGENT, Reason.AGENT_LOST})
"""With these the endpoint was never asked, so another server is; any other reason is the endpoint's verdict."""


class Dialer:
    """Fulfils `opener.Opener`."""

    def __init__(
        self,
        settings: DialerSettings,
        metrics: CertificateMetrics | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises StartupError (UMB020 to UMB022) when the certificate files cannot be used."""
        if not settings.servers:
            raise ValueError("a dialer needs at least one server")
        self.certificate_metrics: Final = metrics or CertificateMetrics()
        self._now: Final = now
        self._watched: Final = watched_context(settings, self.certificate_metrics)
        scratch = Scratch()
        self._ways: Final = [Way(server, settings, self._watched, scratch) for server in settings.servers]
        self._started = False

    async def open(self, host: str, port: int, trace: Trace | None = None) -> Streams:
        """Raises DialFailed: of the endpoint, or of the server that was tried last."""
        self._start()
        endpoint = authority_of(host, port)
        failure: DialFailed | None = None
        for way in self._ranked():
            if trace is not None:
                trace.begin(way.name)
            try:
                opened = await way.open(endpoint, trace)
            except DialFailed as error:
                failure = error
                if error.reason not in ANOTHER_MAY:
                    raise
                self._set_aside(way, error)
            else:
                self._welcome(way)
                return opened
        assert failure is not None
        raise failure

    async def close(self) -> None:
        """Ends what the dialer does by itself; connections that it has opened go on."""
        if self._watched is not None:
            self._watched.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _start(self) -> None:
        """At the first dial: a timer needs a running loop."""
        if not self._started:
            self._started = True
            if self._watched is not None:
                self._watched.start()

    def _ranked(self) -> list[Way]:
        """In the order given; behind them those that failed a short while ago, the longest ago first."""
        limit = self._now() - SET_ASIDE_SECONDS
        return sorted(self._ways, key=lambda way: max(way.failed_at or limit, limit))

    def _set_aside(self, way: Way, failure: DialFailed) -> None:
        if way.failed_at is None and len(self._ways) > 1:
            logger.warning("%s server %s is set aside: %s", failure.verdict.code, way.name, failure.text)
        way.failed_at = self._now()

    def _welcome(self, way: Way) -> None:
        if way.failed_at is not None and len(self._ways) > 1:
            logger.info("server %s works again", way.name)
        way.failed_at = None
