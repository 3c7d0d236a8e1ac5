"""One plain request through a proxy and its response, streamed in both directions, and the headers that are forwarded.

An endpoint may answer before it has read the request, may send 100, or may switch protocols with 101: so neither
direction waits for the other. Bodies are not changed. Framing is never copied: it is generated for each hop (RFC 9110,
7.6 and 10.1).
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import h11

from umbilical.proxies.http_body import Body
from umbilical.proxies.http_client import ClientGone, ProxyClient
from umbilical.proxies.http_head import BadRequest, Field, RequestHead, RequestTarget
from umbilical.proxies.http_reply import chunk, last_chunk, response_head
from umbilical.proxies.http_upstream import BadHttpAnswer, UpstreamConnection, UpstreamLost
from umbilical.proxies.metrics import Traffic
from umbilical.record import Record
from umbilical.tunnel.daemon import end_task, own_task

VIA: Final = (b"Via", b"1.1 umbilical")
"""Required of every proxy by RFC 9110 section 7.6.3. A pseudonym, so that the host's name stays private."""
UPGRADE: Final = b"upgrade"
_FOR_ONE_HOP: Final = frozenset({b"connection", b"keep-alive", b"te", b"transfer-encoding", b"upgrade"})
_REGENERATED: Final = frozenset({b"host", b"content-length"})
_NEVER_IN_TRAILERS: Final = frozenset({b"host", b"content-length", b"trailer", b"via"})
"""Headers that change how a message is read are not allowed as trailers; RFC 9110 section 6.5.1."""


def end_to_end(fields: Iterable[Field]) -> list[Field]:
    """Return the headers without hop-by-hop ones: known names, and those that `Connection` lists."""
    fields = list(fields)
    for_this_hop = _FOR_ONE_HOP | connection_options(fields)
    return [
        field for field in fields if not (field[0].lower() in for_this_hop or field[0].lower().startswith(b"proxy-"))
    ]


def connection_options(fields: Iterable[Field]) -> set[bytes]:
    lists = [value for name, value in fields if name.lower() == b"connection"]
    return {option.strip(b" \t").lower() for value in lists for option in value.split(b",")}


def asked_upgrade(head: RequestHead) -> list[bytes]:
    """Return the protocols of a client's Upgrade. Not in HTTP/1.0: RFC 9110 section 7.8."""
    if head.is_http10 or UPGRADE not in head.options(b"connection"):
        return []
    return head.values(b"upgrade")


def request_fields(head: RequestHead, target: RequestTarget, body: Body) -> list[Field]:
    """Return the headers for the endpoint, or for the proxy before it."""
    ignored = _REGENERATED | ({b"expect"} if head.is_http10 else set())  # RFC 9110 section 10.1.1
    passed = [field for field in end_to_end(head.fields) if field[0].lower() not in ignored]
    framing = [(b"Transfer-Encoding", b"chunked")] if body.length is None else _length(head, body.length)
    passed = _one_less(passed, forwards_left(head))
    return [(b"Host", target.authority.encode("ascii")), *passed, *framing, *_hop_fields(head), VIA]


def _length(head: RequestHead, length: int) -> list[Field]:
    return [(b"Content-Length", b"%d" % length)] if head.values(b"content-length") else []


def _hop_fields(head: RequestHead) -> list[Field]:
    """Return Upgrade and TE for the next hop if the client sent them and we can forward the result."""
    upgrade = asked_upgrade(head)
    wants_trailers = b"trailers" in head.options(b"te") and not head.is_http10
    options = [b"upgrade"] * bool(upgrade) + [b"TE"] * wants_trailers
    fields = [(b"Upgrade", value) for value in upgrade] + [(b"TE", b"trailers")] * wants_trailers
    return [*fields, (b"Connection", b", ".join(options))] if options else []


def forwards_left(head: RequestHead) -> int | None:
    """Return `Max-Forwards` (RFC 9110 section 7.6.2); None: unlimited."""
    values = head.values(b"max-forwards")
    if not values or head.method not in ("TRACE", "OPTIONS"):
        return None
    if len(values) > 1 or not values[0].isdigit() or len(values[0]) > 9:
        raise BadRequest(400, "Max-Forwards is not a number")
    return int(values[0])


def _one_less(fields: list[Field], left: int | None) -> list[Field]:
    if left is None:
        return fields
    return [(name, b"%d" % (left - 1) if name.lower() == b"max-forwards" else value) for name, value in fields]


def response_fields(fields: Iterable[Field], upgrade: Iterable[bytes] = ()) -> list[Field]:
    """Return the headers for the client, without framing; `upgrade` only for 101 and 426."""
    passed = [field for field in end_to_end(fields) if field[0].lower() != b"content-length"]
    protocols = [(b"Upgrade", value) for value in upgrade]
    return [*passed, VIA, *protocols, *([(b"Connection", b"upgrade")] if protocols else [])]


def trailer_fields(fields: Iterable[Field]) -> list[Field]:
    return [field for field in end_to_end(fields) if field[0].lower() not in _NEVER_IN_TRAILERS]


_SWITCHING: Final = 101
_UPGRADE_REQUIRED: Final = 426
_BODILESS: Final = (204, 304)
PROXY_WANTS_CREDENTIALS: Final = 407


class ProxyRefused(Exception):
    """The user's proxy requires credentials; the client cannot supply them."""


class Forwarded(Record):
    """A client's request, and the form in which it is forwarded."""

    head: RequestHead
    body: Body
    target: str
    fields: list[Field]
    through_proxy: bool
    may_follow: Callable[[], bool]
    """Whether the client's connection may serve another request; called after the response."""


class ForwardedExchange:
    def __init__(self, client: ProxyClient, request: Forwarded, upstream: UpstreamConnection, traffic: Traffic) -> None:
        self._client: Final = client
        self._request: Final = request
        self._upstream: Final = upstream
        self._traffic: Final = traffic
        self.has_answered = False
        """The final response has begun: the proxy can no longer send its own."""
        self.has_received = False
        """The endpoint has sent something: the request must not be sent again."""
        self.has_switched = False
        """The protocol was switched; everything received so far has been forwarded."""
        self.is_closed_by_end = False
        """The response ends with the connection."""

    async def run(self) -> None:
        """Raises BadRequest, ClientGone, BadHttpAnswer, ProxyRefused, UpstreamLost, TimeoutError or OSError."""
        request = self._request
        start = h11.Request(method=request.head.method, target=request.target, headers=request.fields)
        end = (h11.EndOfMessage(),) if request.body.is_over else ()
        await self._upstream.send(start, *end)
        request_side, answer = own_task(self._attend_client()), own_task(self._answer())
        try:
            await asyncio.wait({request_side, answer}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                request_side.result()  # an invalid request, or a client that left, ends the exchange
            await answer
        finally:
            await end_task(request_side)
            await end_task(answer)

    async def _attend_client(self) -> None:
        """Send the body, then wait until the client disconnects."""
        if not self._request.body.is_over:
            await self._upload()
        await self._client.until_gone()
        raise ClientGone("the client disconnected before the response")

    async def _upload(self) -> None:
        """Ignore a lost connection: the endpoint may have answered, which the other direction reads."""
        try:
            await self._send_body()
        except UpstreamLost:
            pass

    async def _send_body(self) -> None:
        body = self._request.body
        while not body.is_over:
            try:
                data = await self._client.receive()
            except (OSError, TimeoutError) as error:
                raise ClientGone(str(error)) from error
            if not data:
                raise ClientGone("the client disconnected within a request body")
            pieces = body.feed(data)
            self._client.unread(body.rest)
            self._traffic.to_endpoint.total += sum(map(len, pieces))
            await self._upstream.send(*(h11.Data(data=piece) for piece in pieces))
        await self._upstream.send(h11.EndOfMessage(headers=trailer_fields(body.trailers)))

    async def _answer(self) -> None:
        while True:
            event = await self._upstream.receive()
            self.has_received = self.has_received or not isinstance(event, h11.ConnectionClosed)
            if isinstance(event, h11.Response):
                await self._pass_answer(event)
                return
            if not isinstance(event, h11.InformationalResponse):
                raise UpstreamLost("the connection ended without a response")
            await self._pass_information(event)
            if self.has_switched:
                return

    async def _pass_information(self, event: h11.InformationalResponse) -> None:
        """Forward 1xx, to a client of HTTP/1.1 only: RFC 9110 section 15.2."""
        if event.status_code == _SWITCHING:
            await self._switch(event)
        elif not self._request.head.is_http10:
            fields = response_fields(event.headers.raw_items())
            await self._client.write([response_head(event.status_code, event.reason, fields)])

    async def _switch(self, event: h11.InformationalResponse) -> None:
        self.has_answered = self.has_switched = True
        fields = response_fields(event.headers.raw_items(), _upgrade(event))
        rest = self._upstream.take_rest()
        self._traffic.to_client.total += len(rest)
        await self._client.write([response_head(event.status_code, event.reason, fields), rest])

    async def _pass_answer(self, event: h11.Response) -> None:
        self._check(event)
        framing, chunked = self._framing(event)
        upgrade = _upgrade(event) if event.status_code == _UPGRADE_REQUIRED else []
        fields = response_fields(event.headers.raw_items(), upgrade) + framing
        if self.is_closed_by_end or not self._request.may_follow():
            fields.append((b"Connection", b"close"))
        self.has_answered = True
        await self._client.write([response_head(event.status_code, event.reason, fields)])
        await self._pass_body(chunked)

    def _check(self, event: h11.Response) -> None:
        if self._request.through_proxy and event.status_code == PROXY_WANTS_CREDENTIALS:
            raise ProxyRefused("it answered 407: it requires credentials, or refused those that it was sent")
        if event.http_version < b"1.1" and _values(event, b"transfer-encoding"):
            raise BadHttpAnswer("Transfer-Encoding in an HTTP/1.0 response")  # RFC 9112 section 6.1

    def _framing(self, event: h11.Response) -> tuple[list[Field], bool]:
        """Return the framing headers for the client, and whether the body is chunked."""
        lengths = _values(event, b"content-length")
        if _values(event, b"transfer-encoding"):
            lengths = []  # RFC 9112 section 6.3: Transfer-Encoding overrides it
        sized = [(b"Content-Length", lengths[0])] if lengths else []
        if self._request.head.method == "HEAD" or event.status_code in _BODILESS:
            return sized if event.status_code != 204 else [], False
        if sized:
            return sized, False
        if self._request.head.is_http10:
            self.is_closed_by_end = True
            return [], False
        return [(b"Transfer-Encoding", b"chunked")], True

    async def _pass_body(self, chunked: bool) -> None:
        while isinstance(event := await self._upstream.receive(), h11.Data):
            self._traffic.to_client.total += len(event.data)
            await self._client.write(chunk(event.data) if chunked else [event.data])
        if not isinstance(event, h11.EndOfMessage):
            raise UpstreamLost("the connection ended before the response")
        if chunked:
            await self._client.write([last_chunk(trailer_fields(event.headers.raw_items()))])


def _values(event: h11.Response | h11.InformationalResponse, name: bytes) -> list[bytes]:
    return [value for field, value in event.headers if field == name]


def _upgrade(event: h11.Response | h11.InformationalResponse) -> list[bytes]:
    return _values(event, b"upgrade")
