"""Requests for http:// URLs: each is sent to its endpoint, or to the user's proxy before it.

A client's connection keeps at most one upstream connection, while its requests have the same route. It is never shared
with other clients: docs/decisions/0020-http-proxy-messages.md.
"""

from collections.abc import Callable
from typing import Final

from umbilical.dialer.failure import DialFailed, DialReason, TunnelLost
from umbilical.proxies.http_body import Body, body_of
from umbilical.proxies.http_client import ProxyClient
from umbilical.proxies.http_exchange import Forwarded, ForwardedExchange, ProxyRefused, forwards_left, request_fields
from umbilical.proxies.http_head import HeadLimits, RequestHead, RequestTarget, absolute_target, check_host_field
from umbilical.proxies.http_reply import ProxyAnswer, RequestRefused, undialled
from umbilical.proxies.http_upstream import BadHttpAnswer, UpstreamConnection, UpstreamLost
from umbilical.proxies.metrics import Traffic
from umbilical.proxies.relay import RelayLimits, relay
from umbilical.proxies.user_proxy import RequestRouter, UpstreamRoute

REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Idempotent by RFC 9110 section 9.2.2: sent again if a kept connection has ended."""
BAD_ANSWER: Final = "bad-answer"


class PlainRequests:
    """The plain requests of one client's connection."""

    def __init__(
        self,
        client: ProxyClient,
        router: RequestRouter,
        traffic: Traffic,
        head_limits: HeadLimits,
        relay_limits: RelayLimits,
    ) -> None:
        self._client: Final = client
        self._router: Final = router
        self._traffic: Final = traffic
        self._head_limits: Final = head_limits
        self._relay_limits: Final = relay_limits
        self._kept: UpstreamConnection | None = None

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    async def serve(self, head: RequestHead, may_follow: Callable[[], bool]) -> bool:
        """Serve one request; return whether the client's connection may have another. Raises BadRequest, Refused."""
        target = absolute_target(head.method, head.target)
        check_host_field((head.values(b"host") or [b""])[0].decode("latin-1"))
        body = body_of(head, self._head_limits)
        if forwards_left(head) == 0:
            raise RequestRefused(_last_recipient(head), "ok")
        route = self._router.route(target)
        request = _forwarded(head, target, body, route, may_follow)
        try:
            return await self._exchange(request, route, target)
        except DialFailed as failure:
            raise undialled(target.address, failure) from failure

    async def _exchange(self, request: Forwarded, route: UpstreamRoute, target: RequestTarget) -> bool:
        upstream = await self._upstream(route)
        try:
            exchange = await self._attempt(request, upstream, target)
            if exchange is None:
                upstream = await self._dial(route)
                exchange = await self._attempt(request, upstream, target)
                assert exchange is not None
            if exchange.has_switched:
                await self._relay(upstream)
                return False
            return self._keep(request, upstream, exchange)
        finally:
            if self._kept is not upstream:
                upstream.close()

    async def _upstream(self, route: UpstreamRoute) -> UpstreamConnection:
        """Return the kept connection if it has this route and is still open, else a new one."""
        kept, self._kept = self._kept, None
        if kept is not None:
            if kept.key == route.key and await kept.is_ready_again():
                kept.begin_again()
                return kept
            kept.close()
        return await self._dial(route)

    async def _dial(self, route: UpstreamRoute) -> UpstreamConnection:
        return UpstreamConnection(route.key, await self._router.open(route), self._relay_limits.idle_seconds)

    async def _attempt(
        self, request: Forwarded, upstream: UpstreamConnection, target: RequestTarget
    ) -> ForwardedExchange | None:
        """Return None if a kept connection had ended without an answer and the request may be sent again."""
        exchange = ForwardedExchange(self._client, request, upstream, self._traffic)
        was_whole = request.body.is_over
        try:
            await exchange.run()
        except (BadHttpAnswer, ProxyRefused, UpstreamLost, TimeoutError) as fault:
            upstream.abort()
            if exchange.has_answered:
                if exchange.is_closed_by_end:
                    self._client.abort()
                raise ConnectionResetError(str(fault)) from fault
            is_unanswered = isinstance(fault, UpstreamLost) and upstream.was_used and not exchange.has_received
            if is_unanswered and was_whole and request.head.method in REPEATABLE:
                return None
            raise _refused(target.address, fault) from fault
        return exchange

    def _keep(self, request: Forwarded, upstream: UpstreamConnection, exchange: ForwardedExchange) -> bool:
        if not request.may_follow() or exchange.is_closed_by_end or not request.body.is_over:
            return False
        if upstream.can_serve_more:
            self._kept = upstream
        return True

    async def _relay(self, upstream: UpstreamConnection) -> None:
        rest = self._client.take_rest()
        self._traffic.to_endpoint.total += len(rest)
        upstream.streams[1].write(rest)
        await relay(self._client.streams, upstream.streams, self._relay_limits, self._traffic)


def _forwarded(
    head: RequestHead, target: RequestTarget, body: Body, route: UpstreamRoute, may_follow: Callable[[], bool]
) -> Forwarded:
    fields = request_fields(head, target, body)
    if route.proxy is None:
        return Forwarded(head, body, target.path, fields, False, may_follow)
    url = f"http://{target.authority}{'' if target.path == '*' else target.path}"
    return Forwarded(head, body, url, [*fields, *route.fields], True, may_follow)


def _refused(address: str, fault: Exception) -> RequestRefused:
    if isinstance(fault, ProxyRefused):
        return undialled(address, DialFailed(DialReason.PROXY, "the proxy behind the tunnel", str(fault)))
    if isinstance(fault, TimeoutError):
        what, why = f"no response from {address}", "it accepted the connection and sent no response in time"
        return RequestRefused(ProxyAnswer(504, "UMB546", what, why, "check the endpoint"), DialReason.TIMEOUT.value)
    if isinstance(fault.__cause__, TunnelLost):
        what, remedy = f"the tunnel to {address} broke before its response", TunnelLost.REMEDY
        return RequestRefused(ProxyAnswer(502, TunnelLost.CODE, what, str(fault), remedy), DialReason.SERVER.value)
    what, remedy = f"no valid response from {address}", "check that the endpoint speaks HTTP on this port"
    return RequestRefused(ProxyAnswer(502, "UMB545", what, str(fault), remedy), BAD_ANSWER)


def _last_recipient(head: RequestHead) -> ProxyAnswer:
    what, why = f"{head.method} was not forwarded", "its Max-Forwards is 0"
    remedy = "send it with a higher Max-Forwards"
    return ProxyAnswer(200 if head.method == "OPTIONS" else 405, "UMB540", what, why, remedy)
