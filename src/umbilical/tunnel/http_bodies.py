"""A connection to the health or admin port from the first request on that has a body: served by h11 until it ends.

Loaded only then: h11 costs each process 0.6 MB and 11 ms of its start (decisions/0017).
"""

import asyncio
from http import HTTPStatus
from typing import Final

import h11

from umbilical.tunnel import admin
from umbilical.tunnel.admin import Request, Response, Routes
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http1 import violation_reply

MAX_BODY_BYTES: Final = 256 << 10
"""Go's server reads so much of a body that nobody asked for, and closes the connection if there is more."""


class BodyConnection:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, routes: Routes, received: bytes
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._routes = routes
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=admin.MAX_HEAD_BYTES)
        self._http.receive_data(received)

    async def run(self) -> None:
        while await self._serve_one():
            self._http.start_next_cycle()

    async def _serve_one(self) -> bool:
        """Serve one request; tell whether another may follow."""
        try:
            request = await self._read_request()
            if request is None:
                return False
            await self._send(request, await admin.answer(self._routes, request))
            return await self._skip_body()
        except h11.RemoteProtocolError as error:
            await admin.write(self._writer, violation_reply(ProtocolViolation(error.error_status_hint, str(error))))
            return False

    async def _read_request(self) -> Request | None:
        if not self._http.trailing_data[0]:
            async with asyncio.timeout(admin.IDLE_SECONDS):
                self._http.receive_data(await self._reader.read(admin.READ_BYTES))
        async with asyncio.timeout(admin.HEAD_SECONDS):
            event = await self._next_event()
        return _request_of(event) if isinstance(event, h11.Request) else None

    async def _next_event(self) -> object:
        """An h11 event, or its PAUSED."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(admin.READ_BYTES))
        return event

    async def _send(self, request: Request, response: Response) -> None:
        reason = HTTPStatus(response.status).phrase.encode()
        headers = list(admin.response_headers(response))
        sent = self._http.send(h11.Response(status_code=response.status, reason=reason, headers=headers))
        assert sent is not None
        if request.method != "HEAD":
            sent += self._http.send(h11.Data(data=response.body)) or b""
        sent += self._http.send(h11.EndOfMessage()) or b""
        await admin.write(self._writer, sent)

    async def _skip_body(self) -> bool:
        """Read what is left of the request; tell whether the connection can be used again."""
        left = MAX_BODY_BYTES
        async with asyncio.timeout(admin.HEAD_SECONDS):
            while self._http.their_state is h11.SEND_BODY and not self._http.they_are_waiting_for_100_continue:
                event = await self._next_event()
                left -= len(event.data) if isinstance(event, h11.Data) else 0
                if left < 0 or isinstance(event, h11.ConnectionClosed):
                    return False
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE


def _request_of(event: h11.Request) -> Request:
    host = dict(event.headers).get(b"host", b"").decode("ascii", "replace")
    return admin.request_of(event.method.decode("ascii"), event.target.decode("ascii", "replace"), host)
