"""Which header fields pass a proxy and which end at it: RFC 9110 sections 7.6 and 10.1, both ways.

Framing is never copied from one side to the other: it is said anew for each hop, from what was understood.
"""

from collections.abc import Iterable
from typing import Final

from umbilical.proxies.http_body import Body
from umbilical.proxies.http_head import BadRequest, Field, RequestHead
from umbilical.proxies.http_target import Target

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
    named = connection_options(fields)
    return [field for field in fields if not _ends_here(field[0].lower(), named)]


def connection_options(fields: Iterable[Field]) -> set[bytes]:
    lists = [value for name, value in fields if name.lower() == b"connection"]
    return {option.strip(b" \t").lower() for value in lists for option in value.split(b",")}


def _ends_here(name: bytes, named: set[bytes]) -> bool:
    return name in _FOR_ONE_HOP or name.startswith(b"proxy-") or name in named


def asked_upgrade(head: RequestHead) -> list[bytes]:
    """The protocols that a client offers to change to. HTTP/1.0 knows no such thing: RFC 9110 section 7.8."""
    if head.is_http10 or UPGRADE not in head.options(b"connection"):
        return []
    return head.values(b"upgrade")


def request_fields(head: RequestHead, target: Target, body: Body) -> list[Field]:
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
