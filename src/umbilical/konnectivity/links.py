"""Links of agents, the tunnels on them, and groups of links in the order of their load.

A group has one slot per agent ID. Slots of one rank share a bucket; a load that changes by one moves its slot to the
bucket next door, so that neither a dial nor its end costs more with more agents (decisions/0015).
"""

from typing import Final

from umbilical.konnectivity.metadata import AgentIdentifiers

# A tunnel as the server sees it.
PENDING: Final = 1
ESTABLISHED: Final = 2
CLOSING: Final = 3
"""The client is done; the agent still flushes and then answers."""
ENDED: Final = 4

DRAINING_RANK: Final = 1 << 40
"""Added to the load of a link that drains: it is chosen only when nobody else is left. No load comes near it."""
SICK_RANK: Final = 1 << 41
"""Added when dials stay unanswered. Behind those that drain: they still serve, and their dials can be retried."""


class Tunnel:
    """One client's way to one endpoint, from its dial to its end."""

    def __init__(self, client: object, dial_id: int, address: str, asked_at: float) -> None:
        self.client: Final = client
        """The shell that speaks to the client."""
        self.dial_id: Final = dial_id
        self.address: Final = address
        self.asked_at: Final = asked_at
        self.opened_at = 0.0
        self.closing_since = 0.0
        self.serial = 0
        self.link: AgentLink | None = None
        self.protocol = "tcp"
        self.links_before: tuple[int, ...] = ()
        """Keys of the links that were asked first and did not answer: a dial never goes to one of them again."""
        self.connection_id = 0
        self.state = PENDING
        self.moved_bytes = 0
        """When it was last looked at, where idle tunnels are closed."""
        self.idle_since = 0.0


class AgentLink:
    """One Connect stream of one agent. Two streams with one agent ID are two links, told apart by identity."""

    def __init__(
        self, key: int, agent_id: str, identifiers: AgentIdentifiers, *, understands_pause: bool = False
    ) -> None:
        self.key = key
        """A serial number, unique within this server."""
        self.agent_id = agent_id
        self.identifiers = identifiers
        self.understands_pause = understands_pause
        self.has_own_streams = False
        """Every tunnel has a stream of its own; its connection ID is the stream's number."""
        self.draining = False
        self.connections: dict[int, Tunnel] = {}
        """By the connection ID that the agent chose; filled by the registry."""
        self.pending: dict[int, Tunnel] = {}
        """By dial ID: asked of this agent, not answered yet; filled by the registry."""
        self.answered_orphans: dict[int, None] = {}
        """Connection IDs that nobody owns and whose close was requested already, oldest first."""
        self.shell: object | None = None
        """What the tunnel room hangs on it: the stream itself."""
        self.unanswered_dials = 0
        """In a row; any answer in time sets it back."""
        self.sick = False
        self.probe_due_at = 0.0
        self.probed_at = 0.0
        """When a sick agent was asked for a sign that it dials again; 0: it owes no answer."""
        self.rank = 0
        self.slots: list[AgentSlot] = []

    def load(self) -> int:
        return len(self.pending) + len(self.connections)

    def weigh(self) -> None:
        """Bring the order of choice up to date; every change of the tables and flags above ends with this call."""
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
        """The one that counts."""
        self.rank = 0
        self.index = 0

    def best(self) -> AgentLink:
        """The oldest link, since an agent that finds itself connected twice closes the later one.

        Upstream stops there. Here a link that drains or is sick stands behind a newer one: an agent that was restarted
        under its old ID would else get no dial while its predecessor, kept alive by new dials, cannot leave.
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
        """The only slot; it needs no order. Most hosts are named by one agent, and their groups then cost nothing."""
        self._buckets: Final[dict[int, list[AgentSlot]]] = {}
        self._lowest = 0

    def add(self, link: AgentLink) -> None:
        slot = self.slots.get(link.agent_id)
        if slot is None:
            self._open(link)
        elif link not in slot.links:  # an agent may name the same host twice
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
        """Put a slot where it belongs, after its links or the rank of one of them have changed."""
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
            # A load that grew by one: nobody can be between. All else is rare: an agent drains, falls sick, or heals.
            self._lowest = rank if rank == left + 1 else min(self._buckets)

    def _take(self, slot: AgentSlot) -> None:
        # The last of the bucket takes the hole, so that nothing shifts.
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

    def least_loaded(self, draw: int) -> AgentLink:
        """Of those with the least load, the one that the draw picks. Not to be asked of an empty group."""
        if self._alone is not None:
            return self._alone.link
        bucket = self._buckets[self._lowest]
        return bucket[draw % len(bucket)].link

    def is_well(self) -> bool:
        """Whether there is a link that neither drains nor is sick."""
        lowest = self._alone.link.rank if self._alone is not None else self._lowest
        return bool(self.slots) and lowest < DRAINING_RANK
