"""Closes tunnels that have moved nothing for long: some clients forget theirs (kubernetes 140512, fault O16).

Looks at byte counts from time to time, so that a tunnel pays nothing per byte and has no timer of its own.
"""

import logging
from typing import Final, cast

from umbilical.konnectivity.commands import ESTABLISHED, Tunnel
from umbilical.tunnel.client import Client
from umbilical.tunnel.exchange import Exchange
from umbilical.tunnel.loop import Handler

logger = logging.getLogger(__name__)

LOOKS: Final = 4
"""Within the time limit; a tunnel is closed at most a fourth of it late."""


class IdleReaper(Handler):
    def __init__(self, exchange: Exchange, seconds: float) -> None:
        self._exchange: Final = exchange
        self._loop: Final = exchange.loop
        self._seconds: Final = seconds
        self._timer = self._loop.after(seconds / LOOKS, self)

    def stop(self) -> None:
        self._loop.cancel(self._timer)

    def on_timer(self) -> None:
        try:
            for link in list(self._exchange.links.values()):
                for tunnel in list(link.connections.values()):
                    self._look_at(tunnel)
        finally:
            self._timer = self._loop.after(self._seconds / LOOKS, self)

    def _look_at(self, tunnel: Tunnel) -> None:
        client = cast(Client, tunnel.client)
        moved = client.bytes_from_client + client.bytes_to_client
        if moved != tunnel.moved_bytes or tunnel.idle_since == 0.0:
            tunnel.moved_bytes = moved
            tunnel.idle_since = self._loop.now
        elif self._loop.now - tunnel.idle_since >= self._seconds and tunnel.state == ESTABLISHED:
            client.end_idle(f"idle for {self._seconds:g} s")

    def on_crash(self, error: Exception) -> None:
        logger.error("internal error in the look for idle tunnels: %r", error)
