"""`GET /v1/status` and `/v1/events` on the admin port: who may read them, and a document written in slices.

Loopback and a Unix socket need nothing. Any other address needs TLS and a token; without them the API is closed there,
and everything else on the port stays as it is (decisions/0052).
"""

import asyncio
import socket
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import parse_qs

from umbilical.fault import Fault
from umbilical.konnectivity.dial_failure import BadAddress, join_host_port, split_host_port
from umbilical.record import Record
from umbilical.tunnel.events import MOST_LISTENERS, EventSource
from umbilical.tunnel.http_server import HttpRequest, HttpResponse, HttpRoutes
from umbilical.tunnel.settings import AgentSettings, ListenAddress, ServerSettings, UnixFrontend
from umbilical.tunnel.status.parts import API_VERSION
from umbilical.tunnel.status.state import Document

PATH: Final = "/v1/status"
EVENTS: Final = "/v1/events"
MOST_TUNNELS: Final = 1_000
"""Listed if the query does not say otherwise. The count is always that of all."""
LARGEST_LIST: Final = 1_000_000
SLICE: Final = 100
"""Items that are described and encoded before others get their turn: 0.6 ms of tunnels, 3 ms of agents (measured)."""
_JSON: Final = (("Content-Type", "application/json"), ("Cache-Control", "no-store"))
_EVENTS: Final = (("Content-Type", "text/event-stream"), ("Cache-Control", "no-store"))
_PLAIN: Final = (("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff"))
_CHALLENGE: Final = (*_PLAIN, ("WWW-Authenticate", "Bearer"))


class StatusSource(Protocol):
    async def document(self, most_tunnels: int, worker: str) -> Document | None:
        """Describe everything; lists may be iterators. `worker` is a number, or empty; None: there is no such one."""
        ...

    def events(self) -> EventSource: ...

    def whose(self) -> Document:
        """For the first event: `kind` and `id`."""
        ...


class StatusAccess(Record):
    """Of one admin address."""

    place: ListenAddress | UnixFrontend
    has_tls: bool
    token_path: Path | None

    @staticmethod
    def of(settings: ServerSettings | AgentSettings) -> "StatusAccess":
        has_tls = settings.admin_tls.certificate is not None
        return StatusAccess(settings.admin_listen, has_tls, settings.status_token_path)

    def refusal(self, request: HttpRequest) -> HttpResponse | None:
        """None if the request may be answered."""
        if isinstance(self.place, UnixFrontend):
            return None  # the file's mode decides who may connect
        if is_local(self.place):
            if not _names_this_machine(request.host):
                why = f"the request asks for the host {request.host[:80]!r}, as a page in a browser could"
                return _refused(403, "the status is refused", why, "ask for http://127.0.0.1, localhost or [::1]")
        elif not (self.has_tls and self.token_path):
            why = f"{shown_place(self.place)} is neither loopback nor a Unix socket, and has not both TLS and a token"
            remedy = "ask on loopback, or set --admin unix:PATH, or --admin-cert, --admin-key and --status-token-file"
            return _refused(403, "the status is not served on this address", why, remedy)
        return None if self.token_path is None else _wrong_token(self.token_path, request.authorization)


def is_local(place: ListenAddress | UnixFrontend) -> bool:
    return isinstance(place, UnixFrontend) or _is_loopback(place.host)


def shown_place(place: ListenAddress | UnixFrontend) -> str:
    if isinstance(place, UnixFrontend):
        return f"unix:{place.path}"
    return join_host_port(place.host or "*", place.port)


def _is_loopback(host: str) -> bool:
    if host in ("localhost", "::1"):
        return True
    try:
        return socket.inet_pton(socket.AF_INET, host)[0] == 127
    except OSError:
        return False


def _names_this_machine(host: str) -> bool:
    """A name that an attacker's DNS server leads to loopback must not open the API to a page (DNS rebinding)."""
    try:
        name, _ = split_host_port(host)
    except BadAddress:
        name = host.strip("[]")  # without a port
    return name == "" or _is_loopback(name)


def _wrong_token(path: Path, authorization: str) -> HttpResponse | None:
    import hmac

    try:
        expected = path.read_bytes().strip()
    except OSError as error:
        why = f"the file of --status-token-file cannot be read: {error.strerror}"
        return _refused(403, "the status is refused", why, f"check it on the machine of this process: ls -l {path}")
    if not expected:
        return _refused(403, "the status is refused", "the file of --status-token-file is empty", f"write {path}")
    if hmac.compare_digest(b"Bearer " + expected, authorization.encode("latin-1", "replace")):
        return None
    why = "the request has another bearer token" if authorization else "the request has no bearer token"
    return _refused(401, "the status is refused", why, "give the token: umbilical status --token-file FILE")


def _refused(status: int, what: str, why: str, remedy: str) -> HttpResponse:
    text = Fault("UMB211", what, why, remedy).three_lines + "\n"
    return HttpResponse(status, text.encode(), _CHALLENGE if status == 401 else _PLAIN)


class StatusRoutes:
    """In front of the other routes of an admin port."""

    def __init__(self, others: HttpRoutes, source: StatusSource, access: StatusAccess) -> None:
        self._others = others
        self._source = source
        self._access = access

    async def respond(self, request: HttpRequest) -> HttpResponse:
        if request.path not in (PATH, EVENTS):
            return await self._others.respond(request)
        refusal = self._access.refusal(request)
        if refusal is not None:
            return refusal
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(405, b"the status is read with GET\n", (*_PLAIN, ("Allow", "GET, HEAD")))
        if request.path == EVENTS:
            return self._listen()
        query = parse_qs(request.query)
        number = query.get("tunnels", [str(MOST_TUNNELS)])[0]
        if not (number.isascii() and number.isdigit() and len(number) <= len(str(LARGEST_LIST))):
            return HttpResponse(400, b"tunnels= takes a number\n", _PLAIN)
        document = await self._source.document(min(int(number), LARGEST_LIST), query.get("worker", [""])[0])
        if document is None:
            return HttpResponse(404, b"no such worker\n", _PLAIN)
        return HttpResponse(200, await encode(document), _JSON)

    def _listen(self) -> HttpResponse:
        events = self._source.events()
        if events.is_full():
            return HttpResponse(503, b"%d others listen already\n" % MOST_LISTENERS, _PLAIN)
        return HttpResponse(200, b"", _EVENTS, events.stream({"apiVersion": API_VERSION} | self._source.whose()))


async def encode(document: Document) -> bytes:
    """Write JSON, and let tunnels have their turn after each slice of a long list."""
    import json

    parts: list[str] = []
    for name, section in document.items():
        parts.append(f"{',' if parts else '{'}{json.dumps(name)}:")
        items = section.get("items") if isinstance(section, dict) else None
        if not isinstance(items, Iterator):
            parts.append(json.dumps(section))
            continue
        head = json.dumps({key: value for key, value in section.items() if key != "items"})
        parts.append(f'{head[:-1]}{", " if len(section) > 1 else ""}"items":[')
        separator = ""
        while piece := list(islice(items, SLICE)):
            parts.append(separator + json.dumps(piece)[1:-1])
            separator = ","
            await asyncio.sleep(0)
        parts.append("]}")
    return ("".join(parts) + "}\n").encode()
