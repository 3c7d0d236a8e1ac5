"""Links of agents, the tunnels on them, and groups of links in the order of their load.

A group has one slot per agent ID. Slots of one rank share a bucket; a load that changes by one moves its slot to the
next bucket, so the cost of a dial does not grow with the number of agents (decisions/0015).
"""

from typing import Final, Protocol

from umbilical.konnectivity.dial_failure import DialFailure
from umbilical.konnectivity.metadata import AgentIdentifiers

# States of a tunnel at the server.
PENDING: Final = 1
ESTABLISHED: Final = 2
CLOSING: Final = 3
"""The client closed; the agent flushes its endpoint and then answers."""
ENDED: Final = 4

DRAINING_RANK: Final = 1 << 40
"""Added to the load of a draining link, so that it is chosen only when no other is left. No load comes near it."""
SICK_RANK: Final = 1 << 41
"""Added when dials stay unanswered. Draining links are preferred: they still answer dials."""


EQUAL_SHIFT: Final = 3
"""Loads that differ by an eighth (three bits) of the least count as equal for dials of one moment."""


class TunnelClient(Protocol):
    """The client's end of a tunnel. The registry's commands reach it; it decides nothing about the tunnel."""

    def opened(self, tunnel: "Tunnel") -> None:
        """The dial succeeded."""

    def refused(self, failure: DialFailure) -> None:
        """The dial failed."""

    def closed(self, error: str, cause: str) -> None:
        """The endpoint's side is over: deliver what is buffered, then close the client."""

    def deliver(self, view: memoryview) -> None:
        """Payload from the endpoint, valid during this call."""

    def pause(self) -> None:
        """Stop reading from the client: the agent's end is slow."""

    def resume(self) -> None:
        """Read from the client again."""

    def end_idle(self, cause: str) -> None:
        """Close the tunnel: nothing has moved for too long."""

    def on_crash(self, error: Exception) -> None:
        """Another method raised, which is a bug: close the tunnel at both its ends."""

    def byte_counts(self) -> tuple[int, int]:
        """Bytes received from the client, and bytes for it."""
        ...

    def waiting(self) -> tuple[int, bool]:
        """Bytes that wait for the client, and whether the client's bytes wait for the agent."""
        ...

    def identity(self) -> str:
        """Who the client is, by its certificate or its Unix socket; empty if unknown."""
        ...


class Tunnel:
    """A tunnel from one client to one endpoint, from its dial to its end."""

    def __init__(self, client: TunnelClient, dial_id: int, address: str, asked_at: float) -> None:
        self.client: Final = client
        self.dial_id: Final = dial_id
        self.address: Final = address
        self.asked_at: Final = asked_at
        self.opened_at = 0.0
        self.closing_since = 0.0
        self.serial = 0
        self.link: AgentLink | None = None
        self.protocol = "tcp"
        self.owner = ""
        """The client that the tunnel counts for; empty: tunnels of clients are not counted."""
        self.links_before: tuple[int, ...] = ()
        """Keys of the links that got this dial before and did not answer; it never goes to one of them again."""
        self.may_relay = True
        """False: another worker asked for it, and it does not go to a third."""
        self.connection_id = 0
        self.state = PENDING
        self.moved_bytes = 0
        """Byte counts at the last check for idle tunnels."""
        self.idle_since = 0.0
        self.reported = False
        """Its line is in the log."""


class AgentLink:
    """One Connect stream of one agent. Two streams with one agent ID are two links."""

    def __init__(
        self, key: int, agent_id: str, identifiers: AgentIdentifiers, *, understands_pause: bool = False
    ) -> None:
        self.key = key
        """A serial number, unique within this server."""
        self.agent_id = agent_id
        self.identifiers = identifiers
        self.understands_pause = understands_pause
        self.has_own_streams = False
        """Each tunnel has its own stream, and the connection ID is the stream ID."""
        self.is_sibling = False
        """Not an agent: another worker of this server, which dials through its own agents."""
        self.announced = False
        """Its arrival was logged, so its end will be."""
        self.draining = False
        self.connections: dict[int, Tunnel] = {}
        """By the connection ID that the agent chose; filled by the registry."""
        self.pending: dict[int, Tunnel] = {}
        """By dial ID: sent to this agent, not answered yet; filled by the registry."""
        self.answered_orphans: dict[int, None] = {}
        """Unknown connection IDs that the agent was asked to close already, oldest first."""
        self.unanswered_dials = 0
        """In a row; an answer in time resets it."""
        self.sick = False
        self.probe_due_at = 0.0
        self.probed_at = 0.0
        """When a probe was sent to a sick agent; 0: no probe is unanswered."""
        self.rank = 0
        self.slots: list[AgentSlot] = []

    def load(self) -> int:
        return len(self.pending) + len(self.connections)

    def weigh(self) -> None:
        """Update the rank; call this after every change of the tables and flags above."""
        rank = len(self.pending) + len(self.connections)
        if self.draining:
            rank += DRAINING_RANK
        if self.sick:
            rank += SICK_RANK
        if rank != self.rank:
            self.rank = rank
            for slot in self.slots:
                slot.group.settle(slot)


class AgentSlot:
    """One agent ID within one group."""

    def __init__(self, group: "Group", link: AgentLink) -> None:
        self.group: Final = group
        self.links: Final = [link]
        """Oldest first."""
        self.link = link
        """The one that gets dials."""
        self.rank = 0
        self.index = 0

    def best(self) -> AgentLink:
        """The oldest link: an agent that is connected twice closes the later one.

        Unlike upstream, a newer link is preferred to one that drains or is sick. Otherwise an agent restarted under
        its old ID gets no dials, and its predecessor, kept alive by new dials, never exits.
        """
        best = self.links[0]
        if len(self.links) > 1:
            for link in self.links:
                if link.rank // DRAINING_RANK < best.rank // DRAINING_RANK:
                    best = link
        return best


class Group:
    def __init__(self) -> None:
        self.slots: Final[dict[str, AgentSlot]] = {}
        self._alone: AgentSlot | None = None
        """The only slot, which needs no buckets. Most hosts are announced by one agent."""
        self._buckets: Final[dict[int, list[AgentSlot]]] = {}
        self._lowest = 0
        self._last: AgentSlot | None = None
        """The last choice by a draw, and its moment."""
        self._last_moment = 0

    def add(self, link: AgentLink) -> None:
        slot = self.slots.get(link.agent_id)
        if slot is None:
            self._open(link)
        elif link not in slot.links:  # an agent may announce the same host twice
            slot.links.append(link)
            link.slots.append(slot)
            self.settle(slot)

    def _open(self, link: AgentLink) -> None:
        slot = AgentSlot(self, link)
        self.slots[link.agent_id] = slot
        link.slots.append(slot)
        if len(self.slots) == 1:
            self._alone = slot
            return
        if self._alone is not None:
            self._lowest = self._alone.link.rank
            self._put(self._alone, self._lowest)
            self._alone = None
        self._put(slot, link.rank)
        self._lowest = min(self._lowest, link.rank)

    def leave(self, slot: AgentSlot, link: AgentLink) -> None:
        slot.links.remove(link)
        if slot.links:
            self.settle(slot)
            return
        del self.slots[link.agent_id]
        if self._last is slot:
            self._last = None
        if self._alone is slot:
            self._alone = None
            return
        self._take(slot)
        if len(self.slots) == 1:
            self._buckets.clear()
            self._alone = next(iter(self.slots.values()))
        elif self._lowest not in self._buckets:
            self._lowest = min(self._buckets)

    def settle(self, slot: AgentSlot) -> None:
        """Move a slot to its bucket after its links or their ranks have changed."""
        slot.link = slot.best()
        if self._alone is None and slot.link.rank != slot.rank:
            self._move(slot, slot.link.rank)

    def _move(self, slot: AgentSlot, rank: int) -> None:
        left = slot.rank
        self._take(slot)
        self._put(slot, rank)
        if rank < self._lowest:
            self._lowest = rank
        elif left == self._lowest and left not in self._buckets:
            # A load that grew by one leaves no rank in between. Other changes are rare: drain, sick, healthy again.
            self._lowest = rank if rank == left + 1 else min(self._buckets)

    def _take(self, slot: AgentSlot) -> None:
        # The last slot fills the gap, so that no other index changes.
        bucket = self._buckets[slot.rank]
        last = bucket.pop()
        if last is not slot:
            bucket[slot.index] = last
            last.index = slot.index
        if not bucket:
            del self._buckets[slot.rank]

    def _put(self, slot: AgentSlot, rank: int) -> None:
        bucket = self._buckets.get(rank)
        if bucket is None:
            bucket = []
            self._buckets[rank] = bucket
        slot.rank = rank
        slot.index = len(bucket)
        bucket.append(slot)

    def least_loaded(self, draw: int, moment: int = 0) -> AgentLink:
        """One of the links with the least load, picked by `draw`. The group must not be empty.

        Dials of one `moment` (a number; 0: unknown) go to one link while its load is within an eighth of the least:
        they and their answers then share wake-ups, TLS records and system calls.
        """
        if self._alone is not None:
            return self._alone.link
        last = self._last
        if last is not None and moment and moment == self._last_moment:
            load = self._lowest % DRAINING_RANK
            if last.rank <= self._lowest + (load >> EQUAL_SHIFT):
                return last.link
        bucket = self._buckets[self._lowest]
        slot = bucket[draw % len(bucket)]
        self._last, self._last_moment = slot, moment
        return slot.link

    def is_well(self) -> bool:
        """Whether a link is neither draining nor sick."""
        lowest = self._alone.link.rank if self._alone is not None else self._lowest
        return bool(self.slots) and lowest < DRAINING_RANK
