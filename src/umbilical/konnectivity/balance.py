"""The links that serve one key, kept in the order of their load: the least loaded is found without a look at others.

A group has one seat per agent ID. Seats of one rank share a bucket; a load that changes by one moves its seat to the
bucket next door, so that neither a dial nor its end costs more with more agents (decisions/0015).
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from umbilical.konnectivity.routing import AgentLink

DRAINING_RANK: Final = 1 << 40
"""Added to the load of a link that drains: it is chosen only when nobody else is left. No load comes near it."""
SICK_RANK: Final = 1 << 41
"""Added when dials stay unanswered. Behind those that drain: they still serve, and their dials can be retried."""


class Seat:
    """One agent ID within one group."""

    def __init__(self, group: "Group", link: "AgentLink") -> None:
        self.group: Final = group
        self.links: Final = [link]
        """Oldest first."""
        self.link = link
        """The one that counts."""
        self.rank = 0
        self.index = 0

    def best(self) -> "AgentLink":
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
        self.seats: Final[dict[str, Seat]] = {}
        self._alone: Seat | None = None
        """The only seat; it needs no order. Most hosts are named by one agent, and their groups then cost nothing."""
        self._buckets: Final[dict[int, list[Seat]]] = {}
        self._lowest = 0

    def add(self, link: "AgentLink") -> None:
        seat = self.seats.get(link.agent_id)
        if seat is None:
            self._open(link)
        elif link not in seat.links:  # an agent may name the same host twice
            seat.links.append(link)
            link.seats.append(seat)
            self.settle(seat)

    def _open(self, link: "AgentLink") -> None:
        seat = Seat(self, link)
        self.seats[link.agent_id] = seat
        link.seats.append(seat)
        if len(self.seats) == 1:
            self._alone = seat
            return
        if self._alone is not None:
            self._lowest = self._alone.link.rank
            self._put(self._alone, self._lowest)
            self._alone = None
        self._put(seat, link.rank)
        self._lowest = min(self._lowest, link.rank)

    def leave(self, seat: Seat, link: "AgentLink") -> None:
        seat.links.remove(link)
        if seat.links:
            self.settle(seat)
            return
        del self.seats[link.agent_id]
        if self._alone is seat:
            self._alone = None
            return
        self._take(seat)
        if len(self.seats) == 1:
            self._buckets.clear()
            self._alone = next(iter(self.seats.values()))
        elif self._lowest not in self._buckets:
            self._lowest = min(self._buckets)

    def settle(self, seat: Seat) -> None:
        """Put a seat where it belongs, after its links or the rank of one of them have changed."""
        seat.link = seat.best()
        if self._alone is None and seat.link.rank != seat.rank:
            self._move(seat, seat.link.rank)

    def _move(self, seat: Seat, rank: int) -> None:
        left = seat.rank
        self._take(seat)
        self._put(seat, rank)
        if rank < self._lowest:
            self._lowest = rank
        elif left == self._lowest and left not in self._buckets:
            # A load that grew by one: nobody can be between. All else is rare: an agent drains, falls sick, or heals.
            self._lowest = rank if rank == left + 1 else min(self._buckets)

    def _take(self, seat: Seat) -> None:
        # The last of the bucket takes the hole, so that nothing shifts.
        bucket = self._buckets[seat.rank]
        last = bucket.pop()
        if last is not seat:
            bucket[seat.index] = last
            last.index = seat.index
        if not bucket:
            del self._buckets[seat.rank]

    def _put(self, seat: Seat, rank: int) -> None:
        bucket = self._buckets.get(rank)
        if bucket is None:
            bucket = []
            self._buckets[rank] = bucket
        seat.rank = rank
        seat.index = len(bucket)
        bucket.append(seat)

    def least_loaded(self, draw: int) -> "AgentLink":
        """Of those with the least load, the one that the draw picks. Not to be asked of an empty group."""
        if self._alone is not None:
            return self._alone.link
        bucket = self._buckets[self._lowest]
        return bucket[draw % len(bucket)].link

    def is_well(self) -> bool:
        """Whether there is a link that neither drains nor is sick."""
        lowest = self._alone.link.rank if self._alone is not None else self._lowest
        return bool(self.seats) and lowest < DRAINING_RANK
