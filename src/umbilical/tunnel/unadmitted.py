"""Peers that are not admitted yet: their number, their handshakes per turn, and who must go when there are too many.

A peer is admitted by its first valid call. A flood of strangers must not keep an honest one out: above the limit new
connections wait in the backlog, and of the host with the most of them the peer that was idle longest is dropped. One
that makes progress is left alone: after a restart of the server all agents connect at once, perhaps from one address.
"""

import logging
import socket
from typing import Final

from umbilical.tunnel.causes import DROPPED, FailureCause
from umbilical.tunnel.descriptors import FileWatch
from umbilical.tunnel.listening import AcceptRule
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.notices import LogThrottle
from umbilical.tunnel.tls_channel import HandshakeLimit, TlsChannel

logger = logging.getLogger(__name__)

MOST_UNADMITTED: Final = 256
"""Of one listener. Agents need a round trip or two for handshake and call, so thousands per second fit."""
SILENT_SECONDS: Final = 1.0
"""Time that a crowd leaves a peer for its first byte, which follows the connect at once. With the limit above, a
backlog full of 4,096 silent connections is gone in 16 s, less than the deadline of one handshake."""
IDLE_SECONDS: Final = 5.0
"""Time that a crowd leaves a peer for each further step of its handshake, and for its call."""
MOST_STEPS: Final = 3
"""Steps that count as progress: a TLS handshake has two, or three if the server asks for another key share."""
HANDSHAKE_STEPS_PER_TURN: Final = 2
"""A step takes 0.4 to 1.4 ms (measured, mTLS with P-256); tunnels and health wait for those of one turn."""
PAUSE_SECONDS: Final = 1.0
"""For the handshakes of a host after one of its peers sent a flood. Without it, a peer that connects again whenever it
is cut takes a third of a core (measured: an echo beside it has four times its p99)."""


class _Peer:
    def __init__(self, channel: TlsChannel, now: float) -> None:
        self.channel: Final = channel
        self.host: Final = _host(channel)
        self.idle_since = now
        self.steps = 0

    def step(self, now: float) -> None:
        if self.steps < MOST_STEPS:
            self.steps += 1
            self.idle_since = now

    def may_go_at(self) -> float:
        return self.idle_since + (IDLE_SECONDS if self.steps else SILENT_SECONDS)


class UnadmittedPeers(HandshakeLimit):
    """Those of one listener."""

    def __init__(self, loop: Loop, what: str) -> None:
        self._loop: Final = loop
        self._what: Final = what
        self._peers: Final[dict[TlsChannel, _Peer]] = {}
        self._admitted: Final[set[TlsChannel]] = set()
        self._late: dict[TlsChannel, None] = {}
        """Handshakes that go on in a later turn."""
        self._paused_until: Final[dict[str, float]] = {}
        """By host, oldest first; those that are over are removed."""
        self._held: Final[dict[TlsChannel, None]] = {}
        """Handshakes of hosts that are paused."""
        self._turn = -1
        self._steps = 0
        self._throttle: Final = LogThrottle()

    def add(self, channel: TlsChannel) -> None:
        self._admitted.discard(channel)
        if channel not in self._peers:
            self._peers[channel] = _Peer(channel, self._loop.now)
            channel.handshakes = self

    def admit(self, channel: TlsChannel) -> None:
        if self._peers.pop(channel, None) is not None:
            self._admitted.add(channel)

    def discard(self, channel: TlsChannel) -> None:
        self._peers.pop(channel, None)
        self._late.pop(channel, None)
        self._held.pop(channel, None)
        self._admitted.discard(channel)

    def __len__(self) -> int:
        return len(self._peers)

    def connected(self) -> int:
        """The admitted ones too."""
        return len(self._peers) + len(self._admitted)

    def has_space(self) -> bool:
        return len(self._peers) < MOST_UNADMITTED

    def makes_space(self) -> bool:
        if self.drop_one(f"{DROPPED}: too many connections are not admitted"):
            return True
        more = self._throttle.more("UMB422", self._loop.now)
        if more is not None:
            text = f"{len(self._peers)} {self._what} are not admitted yet; further ones wait{more}"
            cause = FailureCause("UMB422", text)
            logger.warning("%s %s", cause.code, cause.text, extra=cause.fields)
        return False

    def drop_one(self, why: str) -> bool:
        """Of the host with the most peers here, drop one that was idle for too long; False if there is none."""
        by_host: dict[str, list[_Peer]] = {}
        for peer in self._peers.values():
            by_host.setdefault(peer.host, []).append(peer)
        for peer in max(by_host.values(), key=len, default=[]):
            if peer.may_go_at() <= self._loop.now and peer.channel not in self._late:
                peer.channel.fail(why)
                return True
        return False

    def pause_host(self, channel: TlsChannel) -> None:
        host = _host(channel)
        if not self._paused_until:
            self._loop.after(PAUSE_SECONDS, self)
        self._paused_until.pop(host, None)
        self._paused_until[host] = self._loop.now + PAUSE_SECONDS

    def on_timer(self) -> None:
        """A pause is over."""
        while self._paused_until:
            host, until = next(iter(self._paused_until.items()))
            if until > self._loop.now:
                self._loop.after(until - self._loop.now, self)
                break
            del self._paused_until[host]
        for channel in list(self._held):
            if _host(channel) not in self._paused_until:
                del self._held[channel]
                self._put_off(channel)

    def defers(self, channel: TlsChannel) -> bool:
        if self._paused_until and _host(channel) in self._paused_until:
            self._held[channel] = None
            return True
        if self._turn != self._loop.turns:
            self._turn = self._loop.turns
            self._steps = 0
        self._steps += 1
        if self._steps <= HANDSHAKE_STEPS_PER_TURN and not self._late:
            self._progress(channel)
            return False
        self._put_off(channel)
        return True

    def _put_off(self, channel: TlsChannel) -> None:
        """To the next turn."""
        if not self._late:
            self._loop.again(self)
        self._late[channel] = None

    def _progress(self, channel: TlsChannel) -> None:
        peer = self._peers.get(channel)
        if peer is not None:
            peer.step(self._loop.now)

    def on_again(self) -> None:
        for channel in list(self._late)[:HANDSHAKE_STEPS_PER_TURN]:
            if self._late.pop(channel, channel) is None:  # not discarded by a step before
                self._progress(channel)
                channel.go_on()
        if self._late:
            self._loop.again(self)

    def on_crash(self, error: Exception) -> None:
        logger.error("internal error in a handshake: %r", error)
        if self._late:
            self._loop.again(self)


def _host(channel: TlsChannel) -> str:
    """An IPv4 address, or the first half of an IPv6 address: one machine may have all of the other half."""
    host = channel.peer().rpartition(":")[0].strip("[]").partition("%")[0]
    return socket.inet_pton(socket.AF_INET6, host)[:8].hex() if ":" in host else host


class ClientRule(AcceptRule):
    """For clients: all files but those of agents and health."""

    def __init__(self, files: FileWatch, peers: UnadmittedPeers | None) -> None:
        self._files: Final = files
        self._peers: Final = peers

    def has_space(self, listener: int) -> bool:
        if self._peers is not None and not self._peers.has_space():
            return False
        return self._files.is_free_below(self._files.shares.for_clients, listener)

    def makes_space(self, listener: int) -> bool:
        if self._peers is not None and not self._peers.has_space():
            return self._peers.makes_space()
        self._files.refused("new clients wait")
        return False

    def failed(self, reason: str) -> None:
        self._files.refused(f"new clients wait: {reason}")


class AgentRule(AcceptRule):
    """For the port that any host may reach: files are left for clients, and strangers go before agents wait."""

    def __init__(self, files: FileWatch, peers: UnadmittedPeers) -> None:
        self._files: Final = files
        self._peers: Final = peers

    def has_space(self, listener: int) -> bool:
        if not self._peers.has_space():
            return False
        shares = self._files.shares
        few = self._peers.connected() < shares.for_anything - shares.for_clients
        return self._files.is_free_below(shares.for_anything if few else shares.for_strangers, listener)

    def makes_space(self, listener: int) -> bool:
        if not self._peers.has_space():
            return self._peers.makes_space()
        self._files.refused("new connections of agents wait, and those that are not admitted are dropped")
        return self._peers.drop_one(f"{DROPPED}: open files run short")

    def failed(self, reason: str) -> None:
        self._files.refused(f"new connections of agents wait: {reason}")
