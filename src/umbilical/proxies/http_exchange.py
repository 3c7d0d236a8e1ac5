"""One plain request through a proxy and its answer, both streamed at the same time, and the fields that pass.

An endpoint may answer before it has read the request, may ask for it by 100, or may change the protocol by 101: so
neither direction waits for the other. Nothing of a body is changed; only where its pieces are cut. Framing is never
copied from one side to the other: it is said anew for each hop, from what was understood (RFC 9110, 7.6 and 10.1).
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import h11

from umbilical.proxies.http_body import Body
from umbilical.proxies.http_client import ClientConnection, ClientGone
from umbilical.proxies.http_head import BadRequest, Field, RequestHead, RequestTarget
from umbilical.proxies.http_reply import chunk, last_chunk, response_head
from umbilical.proxies.http_upstream import BadHttpAnswer, UpstreamConnection, UpstreamLost
from umbilical.proxies.metrics import Traffic
from umbilical.record import Record
from umbilical.tunnel.daemon import end_task, own_task

VIA: Final = (b"Via", b"1.1 umbilical")
"""RFC 9110 section 7.6.3 wants it of every proxy. A fixed word instead of a host's name, which is nobody's business."""
UPGRADE: Final = b"upgrade"
_FOR_ONE_HOP: Final = frozenset({b"connection", b"keep-alive", b"te", b"transfer-encoding", b"upgrade"})
_SAID_ANEW: Final = frozenset({b"host", b"content-length"})
_NEVER_BEHIND_A_BODY: Final = frozenset({b"host", b"content-length", b"trailer", b"via"})
"""What would change how a message is read must not come when it has been read; RFC 9110 section 6.5.1."""


def end_to_end(fields: Iterable[Field]) -> list[Field]:
    """Without what was meant for this hop: by its name, or because `Connection` names it."""
    fields = list(fields)
    for_this_hop = _FOR_ONE_HOP | connection_options(fields)
    return [
        field for field in fields if not (field[0].lower() in for_this_hop or field[0].lower().startswith(b"proxy-"))
    ]


def connection_options(fields: Iterable[Field]) -> set[bytes]:
    lists = [value for name, value in fields if name.lower() == b"connection"]
    return {option.strip(b" \t").lower() for value in lists for option in value.split(b",")}


def asked_upgrade(head: RequestHead) -> list[bytes]:
    """The protocols that a client offers to change to. HTTP/1.0 knows no such thing: RFC 9110 section 7.8."""
    if head.is_http10 or UPGRADE not in head.options(b"connection"):
        return []
    return head.values(b"upgrade")


def request_fields(head: RequestHead, target: RequestTarget, body: Body) -> list[Field]:
    """What the endpoint, or the proxy before it, is sent."""
    ignored = _SAID_ANEW | ({b"expect"} if head.is_http10 else set())  # RFC 9110 section 10.1.1
    passed = [field for field in end_to_end(head.fields) if field[0].lower() not in ignored]
    framing = [(b"Transfer-Encoding", b"chunked")] if body.length is None else _length(head, body.length)
    passed = _one_less(passed, forwards_left(head))
    return [(b"Host", target.authority.encode("ascii")), *passed, *framing, *_hop_fields(head), VIA]


def _length(head: RequestHead, length: int) -> list[Field]:
    return [(b"Content-Length", b"%d" % length)] if head.values(b"content-length") else []


def _hop_fields(head: RequestHead) -> list[Field]:
    """What we ask of the next hop because the client asked it of us, and we can pass on what comes of it."""
    upgrade = asked_upgrade(head)
    wants_trailers = b"trailers" in head.options(b"te") and not head.is_http10
    options = [b"upgrade"] * bool(upgrade) + [b"TE"] * wants_trailers
    fields = [(b"Upgrade", value) for value in upgrade] + [(b"TE", b"trailers")] * wants_trailers
    return [*fields, (b"Connection", b", ".join(options))] if options else []


def forwards_left(head: RequestHead) -> int | None:
    """`Max-Forwards` where it counts, RFC 9110 section 7.6.2; None: as many as there are."""
    values = head.values(b"max-forwards")
    if not values or head.method not in ("TRACE", "OPTIONS"):
        return None
    if len(values) > 1 or not values[0].isdigit() or len(values[0]) > 9:
        raise BadRequest(400, "a Max-Forwards that is no number")
    return int(values[0])


def _one_less(fields: list[Field], left: int | None) -> list[Field]:
    if left is None:
        return fields
    return [(name, b"%d" % (left - 1) if name.lower() == b"max-forwards" else value) for name, value in fields]


def response_fields(fields: Iterable[Field], upgrade: Iterable[bytes] = ()) -> list[Field]:
    """What the client is sent, without framing; `upgrade` only for 101 and 426."""
    passed = [field for field in end_to_end(fields) if field[0].lower() != b"content-length"]
    protocols = [(b"Upgrade", value) for value in upgrade]
    return [*passed, VIA, *protocols, *([(b"Connection", b"upgrade")] if protocols else [])]


def trailer_fields(fields: Iterable[Field]) -> list[Field]:
    return [field for field in end_to_end(fields) if field[0].lower() not in _NEVER_BEHIND_A_BODY]


_SWITCHING: Final = 101
_UPGRADE_REQUIRED: Final = 426
_BODILESS: Final = (204, 304)
PROXY_WANTS_CREDENTIALS: Final = 407


class ProxyRefused(Exception):
    """The user's proxy wants credentials that it was not given; the client cannot give them."""


class Forwarded(Record):
    """A request as the endpoint is to see it, beside the one that the client sent."""

    head: RequestHead
    body: Body
    target: str
    fields: list[Field]
    through_proxy: bool
    may_follow: Callable[[], bool]
    """Whether the client's connection shall serve another request; asked when the answer is there."""


class ForwardedExchange:
    def __init__(
        self, client: ClientConnection, request: Forwarded, upstream: UpstreamConnection, traffic: Traffic
    ) -> None:
        self._client: Final = client
        self._request: Final = request
        self._upstream: Final = upstream
        self._traffic: Final = traffic
        self.has_answered = False
        """The client has the beginning of a final answer: nothing else can be said any more."""
        self.has_heard = False
        """The endpoint has said something: the request is not to be sent twice."""
        self.has_switched = False
        """Both sides speak another protocol from here on; what they sent already has been passed on."""
        self.is_closed_by_end = False
        """The answer had no other end than the connection's."""

    async def run(self) -> None:
        """Raises BadRequest, ClientGone, BadAnswer, ProxyRefused, UpstreamLost, TimeoutError or OSError."""
        request = self._request
        start = h11.Request(method=request.head.method, target=request.target, headers=request.fields)
        end = (h11.EndOfMessage(),) if request.body.is_over else ()
        await self._upstream.send(start, *end)
        request_side, answer = own_task(self._attend_client()), own_task(self._answer())
        try:
            await asyncio.wait({request_side, answer}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                request_side.result()  # a request that turns out to be none, or a client that left, ends everything
            await answer
        finally:
            await end_task(request_side)
            await end_task(answer)

    async def _attend_client(self) -> None:
        """Until the client is gone: nobody would be there to take the answer."""
        if not self._request.body.is_over:
            await self._upload()
        await self._client.until_gone()
        raise ClientGone("the client left before its answer came")

    async def _upload(self) -> None:
        """An endpoint that stops reading may well have answered: that is for the other direction to find out."""
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
                raise ClientGone("the client ended in the middle of a body")
            pieces = body.feed(data)
            self._client.unread(body.rest)
            self._traffic.to_endpoint.total += sum(map(len, pieces))
            await self._upstream.send(*(h11.Data(data=piece) for piece in pieces))
        await self._upstream.send(h11.EndOfMessage(headers=trailer_fields(body.trailers)))

    async def _answer(self) -> None:
        while True:
            event = await self._upstream.receive()
            self.has_heard = self.has_heard or not isinstance(event, h11.ConnectionClosed)
            if isinstance(event, h11.Response):
                await self._pass_answer(event)
                return
            if not isinstance(event, h11.InformationalResponse):
                raise UpstreamLost("the connection ended without an answer")
            await self._pass_information(event)
            if self.has_switched:
                return

    async def _pass_information(self, event: h11.InformationalResponse) -> None:
        """To a client of HTTP/1.1 alone: RFC 9110 section 15.2."""
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
            raise ProxyRefused("it answers 407: it wants credentials, or others than it was given")
        if event.http_version < b"1.1" and _values(event, b"transfer-encoding"):
            raise BadHttpAnswer("Transfer-Encoding in an HTTP/1.0 answer")  # RFC 9112 section 6.1

    def _framing(self, event: h11.Response) -> tuple[list[Field], bool]:
        """How the client learns where the body ends, and whether that is by chunks."""
        lengths = _values(event, b"content-length")
        if _values(event, b"transfer-encoding"):
            lengths = []  # RFC 9112 section 6.3: both are one too many, and this is the one that does not count
        said = [(b"Content-Length", lengths[0])] if lengths else []
        if self._request.head.method == "HEAD" or event.status_code in _BODILESS:
            return said if event.status_code != 204 else [], False
        if said:
            return said, False
        if self._request.head.is_http10:
            self.is_closed_by_end = True
            return [], False
        return [(b"Transfer-Encoding", b"chunked")], True

    async def _pass_body(self, chunked: bool) -> None:
        while isinstance(event := await self._upstream.receive(), h11.Data):
            self._traffic.to_client.total += len(event.data)
            await self._client.write(chunk(event.data) if chunked else [event.data])
        if not isinstance(event, h11.EndOfMessage):
            raise UpstreamLost("the connection ended before the answer did")
        if chunked:
            await self._client.write([last_chunk(trailer_fields(event.headers.raw_items()))])


def _values(event: h11.Response | h11.InformationalResponse, name: bytes) -> list[bytes]:
    return [value for field, value in event.headers if field == name]


def _upgrade(event: h11.Response | h11.InformationalResponse) -> list[bytes]:
    return _values(event, b"upgrade")
