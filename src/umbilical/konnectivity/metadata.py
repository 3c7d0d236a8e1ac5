"""The gRPC metadata that agent and server exchange, and the only place for its header names.

Refusal texts are upstream's, letter for letter: they reach the other side as the gRPC status message.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote_plus

AGENT_ID: Final = b"agentid"
AGENT_IDENTIFIERS: Final = b"agentidentifiers"
AUTHORIZATION: Final = b"authorization"
USER_AGENT: Final = b"user-agent"
SERVER_ID: Final = b"serverid"
SERVER_COUNT: Final = b"servercount"
UMBILICAL_PAUSE: Final = b"umbilical-pause"
"""Ours, in both directions: the sender understands PAUSE and RESUME packets. Upstream ignores unknown metadata."""

UMBILICAL_STREAMS: Final = b"umbilical-streams"
"""Ours, in both directions: the sender can give each tunnel its own stream."""

UNDERSTOOD: Final = b"1"
BEARER_PREFIX: Final = "Bearer "

_KNOWN_TYPES: Final = ("ipv4", "ipv6", "host", "cidr", "default-route")
_GO_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
_MAX_QUERY_PARAMETERS: Final = 10_000
"""The limit of Go's net/url since 1.25, against metadata that is slow to parse."""
_LONGEST_PROGRAM: Final = 100
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_INT64_LIMIT: Final = 1 << 63

Headers = list[tuple[bytes, bytes]]


class MetadataRefused(Exception):
    """The other side's metadata is invalid; `text` is upstream's answer."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class AgentIdentifiers(NamedTuple):
    """What an agent announces that it reaches."""

    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    cidr: tuple[str, ...] = ()
    default_route: bool = False


class AgentHello(NamedTuple):
    agent_id: str
    identifiers: AgentIdentifiers
    authorization_values: tuple[str, ...]
    understands_pause: bool
    understands_streams: bool = False
    program: str = ""
    """What the agent calls itself: `umbilical-agent/0.2.0`, `grpc-go/1.80.0`."""


class ServerHello(NamedTuple):
    server_id: str
    server_count: int
    understands_pause: bool
    understands_streams: bool = False


def parse_agent_identifiers(text: str) -> AgentIdentifiers:
    """Read identifiers as the server does: unknown types are skipped, since a newer agent may send them."""
    try:
        query = _parse_query(text)
    except ValueError as error:
        raise MetadataRefused(f"fail to parse url encoded string: {error}") from error
    return AgentIdentifiers(
        ipv4=tuple(query.get("ipv4", ())),
        ipv6=tuple(query.get("ipv6", ())),
        host=tuple(query.get("host", ())),
        cidr=tuple(query.get("cidr", ())),
        default_route=query.get("default-route", [""])[0] in _GO_TRUE,
    )


def check_agent_identifiers(text: str) -> None:
    """Check identifiers as the agent does at start: an unknown type is a typing error."""
    try:
        query = _parse_query(text)
    except ValueError as error:
        raise MetadataRefused(str(error)) from error
    for identifier_type in query:
        if identifier_type not in _KNOWN_TYPES:
            raise MetadataRefused(f"unknown address type: {identifier_type}")


def agent_hello_headers(agent_id: str, identifiers: str, token: str | None, *, streams: bool = True) -> Headers:
    """What our agent sends. Empty identifiers are sent too, as upstream does."""
    headers = [(AGENT_ID, agent_id.encode()), (AGENT_IDENTIFIERS, identifiers.encode())]
    if token is not None:
        headers.append((AUTHORIZATION, (BEARER_PREFIX + token).encode()))
    return headers + _own_metadata(streams)


def agent_hello(headers: Headers) -> AgentHello:
    """Read an agent's request metadata; checks run in upstream's order, so that the same mistake gets the same text."""
    agent_ids = _values(headers, AGENT_ID)
    if len(agent_ids) != 1:
        raise MetadataRefused(f"expected one agent ID in the context, got {_go_slice(agent_ids)}")
    identifiers = _values(headers, AGENT_IDENTIFIERS)
    if len(identifiers) > 1:
        got = _go_slice(identifiers)
        raise MetadataRefused(f"expected at most one set of agent identifiers in the context, got {got}")
    return AgentHello(
        agent_id=agent_ids[0],
        identifiers=parse_agent_identifiers(identifiers[0] if identifiers else ""),
        authorization_values=tuple(_values(headers, AUTHORIZATION)),
        understands_pause=_understands(headers, UMBILICAL_PAUSE),
        understands_streams=_understands(headers, UMBILICAL_STREAMS),
        program="".join(_values(headers, USER_AGENT)[:1])[:_LONGEST_PROGRAM],
    )


def bearer_token(values: Sequence[str]) -> str:
    """Take the token out of the `authorization` values of one agent."""
    if not values:
        raise MetadataRefused("Authentication context was not found in metadata")
    if len(values) > 1:
        raise MetadataRefused(f"too many ({len(values)}) tokens are received")
    if not values[0].startswith(BEARER_PREFIX):
        raise MetadataRefused(f'received token does not have "{BEARER_PREFIX}" prefix')
    return values[0][len(BEARER_PREFIX) :]


def server_hello_headers(server_id: str, server_count: int, *, streams: bool = True) -> Headers:
    return [(SERVER_ID, server_id.encode()), (SERVER_COUNT, b"%d" % server_count), *_own_metadata(streams)]


def _own_metadata(streams: bool) -> Headers:
    """Metadata that upstream does not have."""
    headers = [(UMBILICAL_PAUSE, UNDERSTOOD)]
    if streams:
        headers.append((UMBILICAL_STREAMS, UNDERSTOOD))
    return headers


def server_hello(headers: Headers) -> ServerHello:
    """Read a server's initial metadata; empty after a trailers-only refusal, which then shows as `got []`."""
    server_ids = _values(headers, SERVER_ID)
    if len(server_ids) != 1:
        raise MetadataRefused(f"expected one server ID in the context, got {_go_slice(server_ids)}")
    counts = _values(headers, SERVER_COUNT)
    if len(counts) != 1:
        raise MetadataRefused(f"expected one server count, got {len(counts)}")
    return ServerHello(
        server_ids[0],
        _go_atoi(counts[0]),
        understands_pause=_understands(headers, UMBILICAL_PAUSE),
        understands_streams=_understands(headers, UMBILICAL_STREAMS),
    )


def _values(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("utf-8", "replace") for header, value in headers if header == name]


def _understands(headers: Headers, word: bytes) -> bool:
    return (word, UNDERSTOOD) in headers


def _go_slice(values: list[str]) -> str:
    return f"[{' '.join(values)}]"


def _go_atoi(text: str) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        raise MetadataRefused(f"strconv.Atoi: parsing {_go_quote(text)}: invalid syntax")
    # The length is checked first: int() raises ValueError for very long decimals.
    number = int(digits) if len(digits) < 100 else _INT64_LIMIT
    if number >= _INT64_LIMIT:
        raise MetadataRefused(f"strconv.Atoi: parsing {_go_quote(text)}: value out of range")
    return -number if text[0] == "-" else number


def _go_quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _parse_query(text: str) -> dict[str, list[str]]:
    """Decode a URL query as Go's url.ParseQuery does: the whole text is read, then the first error is raised."""
    parts = text.split("&")
    if len(parts) > _MAX_QUERY_PARAMETERS:
        raise ValueError("number of URL query parameters exceeded limit")
    query: dict[str, list[str]] = {}
    fault = ""
    for part in parts:
        if ";" in part:
            fault = "invalid semicolon separator in query"  # in Go only this one overrides an earlier error
            continue
        if not part:
            continue
        key, _, value = part.partition("=")
        escape_fault = _escape_fault(key) or _escape_fault(value)
        if escape_fault:
            fault = fault or escape_fault
            continue
        query.setdefault(_unescape(key), []).append(_unescape(value))
    if fault:
        raise ValueError(fault)
    return query


def _unescape(text: str) -> str:
    return unquote_plus(text, errors="replace")


def _escape_fault(text: str) -> str:
    at = text.find("%")
    while at >= 0:
        if len(text) < at + 3 or text[at + 1] not in _HEX_DIGITS or text[at + 2] not in _HEX_DIGITS:
            return f"invalid URL escape {_go_quote(text[at : at + 3])}"
        at = text.find("%", at + 3)
    return ""
