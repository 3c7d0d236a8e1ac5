"""Where servers may be: every address of every host that was given or published, and when each is dialled next.

Decides and never acts: the agent asks what is due and reports how it went; time and chance are passed in.
Links are opaque here. What counts is which one an address led to.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from umbilical.konnectivity.agent_session import SyncSchedule
from umbilical.tunnel.outbound import Address, display
from umbilical.tunnel.settings import ServerAddress

LOOK_AGAIN_SECONDS: Final = 30.0
"""Between two lookups of a name while all is well: cluster DNS serves records for as long."""
MISSING_SECONDS: Final = 90.0
"""An address that serves us may be missing this long from what names and leases say. Resolvers rotate long answers,
and a lease that was deleted by mistake is back with the server's next renewal, within 15 s."""


class Target:
    """One address. It may lead to one server, or through a balancer to several."""

    def __init__(self, server: ServerAddress, address: Address | None, schedule: SyncSchedule) -> None:
        self.server: Final = server
        self.address: Final = address
        """None: a proxy looks it up."""
        self.links: Final[set[Hashable]] = set()
        """Those that serve and were found behind this address, by this address or by another."""
        self.is_busy = False
        self.is_failing = False
        self.attempted_at = float("-inf")
        self.due_at = float("-inf")
        self.missing_since: float | None = None
        self.told_reason = ""
        self.explanation = ""
        self._schedule: Final = schedule

    def name(self) -> str:
        """For people: the host as it was given, and the address where that does not say it."""
        shown = display(self.server.host, self.server.port)
        if self.address is None or str(self.address[1][0]) == self.server.host:
            return shown
        return f"{shown} ({self.address[1][0]})"

    def begin(self, now: float) -> None:
        self.is_busy = True
        self.attempted_at = now

    def found(self, link: Hashable, draw: float) -> None:
        """It led to a server that we did not hold."""
        self._leads_to(link, self._schedule.after_success(draw))

    def found_again(self, link: Hashable, draw: float, *, is_alone: bool) -> None:
        """It led to a server that we hold. With one address looking on is all we can do; with more it is a luxury."""
        schedule = self._schedule
        self._leads_to(link, schedule.after_success(draw) if is_alone else schedule.after_failure(draw))

    def _leads_to(self, link: Hashable, wait_seconds: float) -> None:
        self.links.add(link)
        self.is_failing = False
        self.told_reason = ""
        self.due_at = self.attempted_at + wait_seconds

    def failed(self, now: float, draw: float) -> None:
        self.is_failing = True
        self.due_at = now + self._schedule.after_failure(draw)

    def lost(self, link: Hashable) -> None:
        """Its server went or is going: look again at once, but never more than one attempt per beat."""
        if link in self.links:
            self.links.discard(link)
            self.hasten()

    def hasten(self) -> None:
        """There is news: the waits begin anew."""
        self.due_at = self.attempted_at + self._schedule.after_success(0.0)


class Source:
    """A host and port that somebody named, and the addresses that it has."""

    def __init__(self, server: ServerAddress, *, is_given: bool, schedule: SyncSchedule) -> None:
        self.server: Final = server
        self.is_given: Final = is_given
        """On the command line: it stays. Else a lease published it."""
        self.is_named = True
        self.is_busy = False
        self.look_due_at = float("-inf")
        self.told_reason = ""
        self.targets: Final[dict[Address | None, Target]] = {}
        self._answer: frozenset[Address | None] = frozenset()
        self._schedule: Final = schedule

    def resolved(self, addresses: Sequence[Address | None], next_look_at: float) -> None:
        self._schedule.after_success(0.0)
        self._answer = frozenset(addresses)
        self.look_due_at = next_look_at
        self.told_reason = ""

    def unresolved(self, now: float, draw: float) -> None:
        """The last answer stays in use: a resolver that fails says nothing about servers."""
        self.look_due_at = now + self._schedule.after_failure(draw)

    def look_again(self, now: float) -> None:
        """A dial failed: its name may have moved. Addresses that were given as such cannot."""
        if self.look_due_at != float("inf"):
            self.look_due_at = now

    def missing(self) -> list[Target]:
        """Its targets that nothing yields any more."""
        return [target for address, target in self.targets.items() if not (self.is_named and address in self._answer)]

    def unknown(self) -> list[Address | None]:
        """Addresses without a target."""
        return [address for address in self._answer if address not in self.targets] if self.is_named else []

    def is_served(self) -> bool:
        return any(target.links for target in self.targets.values())


class TargetBook:
    """All sources and their targets."""

    def __init__(self, given: Iterable[ServerAddress], interval_seconds: float, cap_seconds: float) -> None:
        self._interval_seconds: Final = interval_seconds
        self._cap_seconds: Final = cap_seconds
        self._sources: Final[dict[ServerAddress, Source]] = {}
        for server in given:
            self._add(server, is_given=True)

    def _add(self, server: ServerAddress, *, is_given: bool) -> None:
        self._sources[server] = Source(server, is_given=is_given, schedule=self._new_schedule())

    def _new_schedule(self) -> SyncSchedule:
        return SyncSchedule(self._interval_seconds, self._cap_seconds)

    def sources(self) -> list[Source]:
        return list(self._sources.values())

    def targets(self) -> list[Target]:
        return [target for source in self._sources.values() for target in source.targets.values()]

    def leads_to(self, link: Hashable) -> bool:
        return any(link in target.links for target in self.targets())

    def link_lost(self, link: Hashable) -> None:
        for target in self.targets():
            target.lost(link)

    def failed(self, target: Target, now: float, draw: float) -> None:
        target.failed(now, draw)
        source = self._sources.get(target.server)
        if source is not None:
            source.look_again(now)

    def publish(self, servers: Sequence[ServerAddress]) -> None:
        """Leases say this now, and nothing else."""
        published = set(servers)
        for source in self._sources.values():
            if not source.is_given:
                source.is_named = source.server in published
        for server in servers:
            if server not in self._sources:
                self._add(server, is_given=False)

    def hasten_published(self) -> None:
        """A lease was written: whoever is not connected may have come back."""
        for source in self._sources.values():
            if not source.is_given:
                for target in source.targets.values():
                    if not target.links:
                        target.hasten()

    def tidy(self, now: float) -> None:
        """Make targets of new addresses, and drop those that nobody yields any more: idle at once, others in time."""
        for source in self.sources():
            for address in source.unknown():
                source.targets[address] = Target(source.server, address, self._new_schedule())
            missing = source.missing()
            for target in source.targets.values():
                if target not in missing:
                    target.missing_since = None
                elif target.missing_since is None:
                    target.missing_since = now
            for target in missing:
                assert target.missing_since is not None
                if not target.links or now - target.missing_since >= MISSING_SECONDS:
                    del source.targets[target.address]
            if not source.is_named and not source.targets:
                del self._sources[source.server]

    def looks_due(self, now: float) -> list[Source]:
        return [
            source
            for source in self._sources.values()
            if source.is_named and not source.is_busy and source.look_due_at <= now
        ]

    def dials_due(self, now: float, wants_more: bool) -> list[Target]:
        """Who is to be dialled now. `wants_more`: search on behind addresses that serve already, too."""
        return [target for target in self._wanted(wants_more) if target.due_at <= now]

    def next_due_at(self, wants_more: bool) -> float:
        """When something is due next, as far as is known."""
        looks = [source.look_due_at for source in self._sources.values() if source.is_named and not source.is_busy]
        return min([*looks, *(target.due_at for target in self._wanted(wants_more))], default=float("inf"))

    def _wanted(self, wants_more: bool) -> list[Target]:
        """A published address is one server's own: once it serves there is nothing more to find behind it."""
        return [
            target
            for source in self._sources.values()
            for target in source.targets.values()
            if not target.is_busy and (not target.links or (wants_more and source.is_given))
        ]

    def hopes(self) -> int:
        """How many more servers may come of what does not serve yet.

        A dead address beside a live one of the same name is none: it may be the balancer's other family.
        """
        return sum(map(_hopes_of, self._sources.values()))

    def is_alone(self, target: Target) -> bool:
        return self.targets() == [target]


def _hopes_of(source: Source) -> int:
    if not source.targets:
        return 1 if source.is_named else 0
    is_served = source.is_served()
    return sum(not target.links and not (target.is_failing and is_served) for target in source.targets.values())
