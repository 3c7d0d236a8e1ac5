"""Detects dead or silent peers by HTTP/2 PINGs and TCP counters."""

from typing import Final

from umbilical.tunnel.loop import Handler
from umbilical.tunnel.settings import Keepalive
from umbilical.tunnel.tcp_facts import TcpFacts, tcp_facts
from umbilical.tunnel.transport import Transport

_PING_PAYLOAD: Final = b"umbilica"


class Heartbeat(Handler):
    """Pings a silent peer and closes the connection without an answer. Anything that the peer sends is an answer."""

    def __init__(self, transport: Transport, keepalive: Keepalive) -> None:
        self._transport: Final = transport
        self._keepalive: Final = keepalive
        self._loop: Final = transport.loop
        self._asked_at = 0.0
        self._timer = self._loop.after(keepalive.interval_seconds, self)

    def stop(self) -> None:
        self._loop.cancel(self._timer)

    def on_crash(self, error: Exception) -> None:
        self._transport.on_crash(error)

    def on_timer(self) -> None:
        transport = self._transport
        if not transport.closed:
            seconds = self._check(transport, self._loop.now)
            if seconds > 0:
                self._timer = self._loop.after(seconds, self)

    def _check(self, transport: Transport, now: float) -> float:
        """Return seconds until the next check; 0 if the connection was closed."""
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
        transport.connection.sender.ping(_PING_PAYLOAD)
        transport.touch()
        return answer_seconds


TICK_SECONDS: Final = 1.0
QUIET_TICK_SECONDS: Final = 2.0
TOGETHER_SECONDS: Final = 0.25
"""Quiet connections look at common times, so that thousands of them do not wake the loop one by one."""
SILENCE_SECONDS: Final = 2.0
"""Silence after activity before the peer is pinged once."""
ANSWER_SECONDS: Final = 1.5
LOSS_WINDOW_SECONDS: Final = 30.0
LOSS_SEGMENTS: Final = 3
LOSS_SHARE: Final = 0.05
"""A healthy network loses a hundred times less. LOSS_SEGMENTS avoids warnings on little traffic; it is low because the
kernel doubles its timeout at each loss, so that a bad network too loses only a few segments in half a minute."""
_PROBE_PAYLOAD: Final = b"alive???"


class PathWatch(Handler):
    """Detects within seconds that an active peer fell silent, long before keepalive closes the connection.

    quiet -> active -> asked -> quiet          One ping after each burst of activity; none while idle.
    It only reports; keepalive and the kernel close connections.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport: Final = transport
        self._loop: Final = transport.loop
        self._heard_at = transport.heard_at
        self._progress = transport.progress
        self._active = True
        self._moved_at = self._loop.now
        self._asked_at = 0.0
        self._sent_again_when_asked = 0
        self._has_told = False
        self._window_at = self._loop.now
        self._sent_again = 0
        self._sent = 0
        self._timer = self._loop.after(TICK_SECONDS, self)

    def stop(self) -> None:
        self._loop.cancel(self._timer)

    def on_crash(self, error: Exception) -> None:
        self._transport.on_crash(error)

    def on_timer(self) -> None:
        if self._transport.closed:
            return
        now = self._loop.now
        has_heard = self._transport.heard_at != self._heard_at
        self._look(now)
        if has_heard:  # otherwise it is silence, not loss
            self._count_losses(now)
        wait = TICK_SECONDS if self._active else QUIET_TICK_SECONDS - now % TOGETHER_SECONDS
        self._timer = self._loop.after(wait, self)

    def _look(self, now: float) -> None:
        transport = self._transport
        has_moved = transport.heard_at != self._heard_at or transport.progress != self._progress
        if self._asked_at > 0:
            if transport.heard_at > self._asked_at:
                self._answered(now)
            elif now - self._asked_at >= ANSWER_SECONDS:
                self._tell_silence(now)
        elif has_moved:
            self._active = True
            self._moved_at = now
        elif self._active and now - transport.heard_at >= SILENCE_SECONDS:
            self._asked_at = now
            facts = tcp_facts(transport.channel.sock)
            self._sent_again_when_asked = facts.sent_again if facts is not None else 0
            transport.connection.sender.ping(_PROBE_PAYLOAD)
            transport.touch()
        self._heard_at = transport.heard_at
        self._progress = transport.progress

    def _answered(self, now: float) -> None:
        if self._has_told:
            self._transport.on_answered(now - self._asked_at)
            self._begin_window(tcp_facts(self._transport.channel.sock), now)
        self._has_told = False
        self._asked_at = 0.0
        self._active = False

    def _tell_silence(self, now: float) -> None:
        self._has_told = True
        facts = tcp_facts(self._transport.channel.sock)
        if facts is not None and facts.unacknowledged == 0 and facts.sent_again > self._sent_again_when_asked:
            # The ping arrived after retransmissions, so its answer may need some too: report loss. Without further
            # retransmissions the next silence is the peer's.
            self._sent_again_when_asked = facts.sent_again
            lost, sent = facts.sent_again - self._sent_again, facts.segments_out - self._sent
            self._transport.on_loss(lost, sent, now - self._window_at)
        else:
            self._transport.on_silent(now - self._moved_at, facts is None or facts.unacknowledged == 0)

    def _count_losses(self, now: float) -> None:
        facts = tcp_facts(self._transport.channel.sock)
        if facts is None:
            return
        again, sent = facts.sent_again - self._sent_again, facts.segments_out - self._sent
        seconds = now - self._window_at
        if again >= LOSS_SEGMENTS and again >= sent * LOSS_SHARE:
            self._transport.on_loss(again, sent, seconds)
        elif seconds < LOSS_WINDOW_SECONDS:
            return
        self._begin_window(facts, now)

    def _begin_window(self, facts: TcpFacts | None, now: float) -> None:
        if facts is not None:
            self._window_at = now
            self._sent_again, self._sent = facts.sent_again, facts.segments_out
