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
        self._loop: Final = transport.loop
        self._asked_at = 0.0
        self._timer = self._loop.after(keepalive.interval_seconds, self)

    def stop(self) -> None:
        self._loop.cancel(self._timer)

    def on_timer(self) -> None:
        transport = self._transport
        if not transport.closed:
            seconds = self._check(transport, self._loop.now)
            if seconds > 0:
                self._timer = self._loop.after(seconds, self)

    def _check(self, transport: Transport, now: float) -> float:
        """Seconds until the next look; 0 when there is none, because the peer is lost."""
        answer_seconds = self._keepalive.answer_seconds
        if self._asked_at > transport.heard_at:
            if now - self._asked_at >= answer_seconds:
                transport.lose(f"keepalive: no answer to a PING within {answer_seconds:g} s")
                return 0.0
            return self._asked_at + answer_seconds - now
        silence = now - transport.heard_at
        if silence < self._keepalive.interval_seconds:
            return self._keepalive.interval_seconds - silence
        self._asked_at = now
        transport.connection.ping(_PING_PAYLOAD)
        transport.touch()
        return answer_seconds
