"""The HTTP proxy: CONNECT, plain requests, and what is logged of them. No TLS of a client's is ever opened here.

head -> CONNECT -> bytes both ways until both ends have ended
     -> plain   -> answer -> the next head, or the end
Of a URL only host and port are logged: what is behind them may be a secret.
"""

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from umbilical.dialer.failure import DialFailed
from umbilical.dialer.streams import Streams
from umbilical.proxies.http_client import Client, ClientGone
from umbilical.proxies.http_head import (
    BadRequest,
    HeadLimits,
    RequestHead,
    Target,
    absolute_target,
    check_host_field,
    connect_target,
)
from umbilical.proxies.http_reply import ESTABLISHED, Answer, Refused, malformed, undialled
from umbilical.proxies.metrics import OK, ProxyMetrics
from umbilical.proxies.relay import RelayLimits, log_request, log_tunnel, peer_of, relay
from umbilical.proxies.settings import ListenerSettings
from umbilical.proxies.user_proxy import Ways
from umbilical.record import Record
from umbilical.tunnel.causes import log_fields
from umbilical.tunnel.notices import LogThrottle

if TYPE_CHECKING:
    from umbilical.proxies.http_plain import PlainRequests

logger = logging.getLogger(__name__)


KEEP_ALIVE_SECONDS: Final = 60.0
"""For the first byte of a request, also of the first; as long as the common servers wait, or longer."""


class HttpLimits(Record):
    head: HeadLimits = HeadLimits()
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS


class HttpProxy:
    """Serves clients that a listener brings."""

    def __init__(
        self,
        ways: Ways,
        settings: ListenerSettings,
        metrics: ProxyMetrics,
        limits: HttpLimits = HttpLimits(),  # noqa: B008 (a frozen record)
        default_connect_port: int | None = None,
    ) -> None:
        self.ways: Final = ways
        self.settings: Final = settings
        self.metrics: Final = metrics
        self.limits: Final = limits
        self.default_connect_port: Final = default_connect_port
        """For CONNECT without a port; None: refused."""
        self.relay_limits: Final = RelayLimits(settings.idle_seconds, settings.buffer_bytes)
        self.throttle: Final = LogThrottle()
        self.is_draining = False
        self.waiting: Final[set[Client]] = set()
        """Clients that were served and have not asked for more yet."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Client((reader, writer), self.settings.idle_seconds)
        connection = _Connection(self, client)
        try:
            await connection.run()
        except ClientGone:
            client.abort()
        finally:
            connection.close()

    def drain(self) -> None:
        self.is_draining = True
        for client in self.waiting:
            if client.is_idle:
                client.close()


class _Connection:
    """One client's, request after request."""

    def __init__(self, proxy: HttpProxy, client: Client) -> None:
        self._proxy: Final = proxy
        self._client: Final = client
        self._plain: PlainRequests | None = None

    def close(self) -> None:
        if self._plain is not None:
            self._plain.close()

    async def run(self) -> None:
        protocol, method = "http", "GET"
        try:
            while (head := await self._next_head()) is not None:
                method, protocol = head.method, "connect" if head.method == "CONNECT" else "http"
                if not await self._serve(head):
                    break
                protocol, method = "http", "GET"
        except BadRequest as fault:
            await self._refuse(malformed(fault), protocol, method)
        except Refused as refused:
            await self._refuse(refused, protocol, method)
        else:
            await self._client.linger()

    async def _next_head(self) -> RequestHead | None:
        proxy, client = self._proxy, self._client
        patience = proxy.limits.keep_alive_seconds, proxy.settings.handshake_seconds
        if self._plain is not None:
            proxy.waiting.add(client)
        try:
            return await client.read_head(proxy.limits.head, *patience)
        finally:
            proxy.waiting.discard(client)

    async def _refuse(self, refused: Refused, protocol: str, method: str) -> None:
        self._proxy.metrics.requested(protocol, refused.result)
        self._tell_refusal(refused.answer)
        await self._client.write([refused.answer.render(method)])
        await self._client.linger()

    def _tell_refusal(self, answer: Answer) -> None:
        """The first of a kind at once, then how many there were."""
        more = self._proxy.throttle.more(f"{answer.code} {answer.what}", time.monotonic())
        if more is not None:
            told = f"{answer.what}: {answer.why}{more}"
            fields = log_fields(answer.code, answer.remedy)
            client = peer_of(self._client.streams[1])
            logger.warning("%s client=%s status=%d: %s", answer.code, client, answer.status, told, extra=fields)

    async def _serve(self, head: RequestHead) -> bool:
        """Whether another request may follow."""
        if head.method == "CONNECT":
            await self._connect(head)
            return False
        began = time.monotonic()
        is_last = head.is_http10 or b"close" in head.options(b"connection")
        another = await self._requests().serve(head, lambda: not is_last and not self._proxy.is_draining)
        self._proxy.metrics.requested("http", OK)
        log_request(self._client.streams[1], absolute_target(head.method, head.target).address, head.method, began)
        return another

    def _requests(self) -> "PlainRequests":
        if self._plain is None:
            from umbilical.proxies.http_plain import PlainRequests

            proxy = self._proxy
            self._plain = PlainRequests(
                self._client, proxy.ways, proxy.metrics.traffic, proxy.limits.head, proxy.relay_limits
            )
        return self._plain

    async def _connect(self, head: RequestHead) -> None:
        check_host_field((head.values(b"host") or [b""])[0].decode("latin-1"))
        if head.values(b"transfer-encoding") or head.values(b"content-length") not in ([], [b"0"]):
            raise BadRequest(400, "a CONNECT with a body")  # RFC 9110 section 9.3.6
        target = connect_target(head.target, self._proxy.default_connect_port)
        endpoint = await self._dial(target)
        try:
            await self._carry(target, endpoint)
        finally:
            endpoint[1].transport.abort()

    async def _dial(self, target: Target) -> Streams:
        try:
            endpoint = await self._proxy.ways.connect(target)
        except DialFailed as failure:
            raise undialled(target.address, failure) from failure
        self._proxy.metrics.requested("connect", OK)
        return endpoint

    async def _carry(self, target: Target, endpoint: Streams) -> None:
        """What the client sent behind its head is the endpoint's, and goes first."""
        began = time.monotonic()
        proxy, early = self._proxy, self._client.take_rest()
        proxy.metrics.traffic.to_endpoint.total += len(early)
        endpoint[1].write(early)
        await self._client.write([ESTABLISHED])
        ending = await relay(self._client.streams, endpoint, proxy.relay_limits, proxy.metrics.traffic)
        log_tunnel(self._client.streams[1], target.address, ending, len(early), began)
