"""Is the peer still there? A PING after silence, and a time limit for its answer."""

from typing import Final

from umbilical.tunnel.loop import Handler
from umbilical.tunnel.settings import Keepalive
from umbilical.tunnel.transport import Transport

_PING_PAYLOAD: Final = b"umbilica"


class Heartbeat(Handler):
    """Ticks for one connection as long as that lives; anything the peer sends counts as an answer."""

    def __init__(self, transport: Transport, keepalive: Keepalive) -> None:
        self._transport: Final = transport
        self._keepalive: Final = keepalive
        self._asked_at = 0.0
        self._stopped = False
        transport.loop.after(keepalive.interval_seconds, self)

    def stop(self) -> None:
        self._stopped = True

    def on_timer(self) -> None:
        transport = self._transport
        if self._stopped or transport.closed:
            return
        now = transport.loop.now
        if self._asked_at > transport.heard_at:
            if now - self._asked_at >= self._keepalive.answer_seconds:
                transport.lose(f"keepalive: no answer to a PING within {self._keepalive.answer_seconds:g} s")
                return
            transport.loop.after(self._asked_at + self._keepalive.answer_seconds - now, self)
            return
        silence = now - transport.heard_at
        if silence >= self._keepalive.interval_seconds:
            self._asked_at = now
            transport.connection.ping(_PING_PAYLOAD)
            transport.touch()
            transport.loop.after(self._keepalive.answer_seconds, self)
        else:
            transport.loop.after(self._keepalive.interval_seconds - silence, self)
