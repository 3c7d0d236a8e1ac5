"""Addresses of servers, configured or published by leases, and when to dial each next.

Decides only: the agent asks what is due and reports the result. Time and random numbers are arguments.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Final

from umbilical.konnectivity.agent_session import SyncSchedule
from umbilical.tunnel.outbound import Address, display
from umbilical.tunnel.settings import ServerAddress

LOOK_AGAIN_SECONDS: Final = 30.0
"""Interval of name lookups without failures: the usual TTL of cluster DNS."""
MISSING_SECONDS: Final = 90.0
"""How long a connected address is kept after names and leases no longer contain it. Resolvers rotate long answers,
and a server recreates a lease that was deleted by mistake within 15 s."""


class ServerTarget:
    """One address of a server, or of a load balancer in front of several."""

    def __init__(self, server: ServerAddress, address: Address | None, schedule: SyncSchedule) -> None:
        self.server: Final = server
        self.address: Final = address
        """None: a proxy resolves the name."""
        self.links: Final[set[Hashable]] = set()
        """Connected links to servers behind this address, also if dialed by another address."""
        self.is_busy = False
        self.is_failing = False
        self.attempted_at = float("-inf")
        self.due_at = float("-inf")
        self.missing_since: float | None = None
        self.told_reason = ""
        self.told_code = ""
        self.explanation = ""
        self._schedule: Final = schedule

    def name(self) -> str:
        """For logs: the host as configured, and the address if the host is a name."""
        shown = display(self.server.host, self.server.port)
        if self.address is None or str(self.address[1][0]) == self.server.host:
            return shown
        return f"{shown} ({self.address[1][0]})"

    def begin(self, now: float) -> None:
        self.is_busy = True
        self.attempted_at = now

    def found(self, link: Hashable, draw: float) -> None:
        """The dial reached a server that was not connected yet."""
        self._leads_to(link, self._schedule.after_success(draw))

    def found_again(self, link: Hashable, draw: float, *, is_alone: bool) -> None:
        """The dial reached a connected server. A single address is dialed again soon, one of several with back-off."""
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
        """The link ended or is ending: dial again at once, with at most one attempt per interval."""
        if link in self.links:
            self.links.discard(link)
            self.hasten()

    def hasten(self) -> None:
        """Reset the back-off: something has changed."""
        self.due_at = self.attempted_at + self._schedule.after_success(0.0)


class ServerSource:
    """A configured or published host and port, and its addresses."""

    def __init__(self, server: ServerAddress, *, is_given: bool, schedule: SyncSchedule) -> None:
        self.server: Final = server
        self.is_given: Final = is_given
        """Configured, so never removed; otherwise published by a lease."""
        self.is_named = True
        self.hides_servers = False
        """Published by a server that is not connected, perhaps a worker behind the same address as another."""
        self.is_busy = False
        self.look_due_at = float("-inf")
        self.told_reason = ""
        self.told_code = ""
        self.targets: Final[dict[Address | None, ServerTarget]] = {}
        self._answer: frozenset[Address | None] = frozenset()
        self._schedule: Final = schedule

    def resolved(self, addresses: Sequence[Address | None], next_look_at: float) -> None:
        self._schedule.after_success(0.0)
        self._answer = frozenset(addresses)
        self.look_due_at = next_look_at
        self.told_reason = ""

    def unresolved(self, now: float, draw: float) -> None:
        """Keep the last answer: a failed lookup does not mean that servers are gone."""
        self.look_due_at = now + self._schedule.after_failure(draw)

    def look_again(self, now: float) -> None:
        """A dial failed: look the name up again. IP addresses have no lookup."""
        if self.look_due_at != float("inf"):
            self.look_due_at = now

    def missing(self) -> list[ServerTarget]:
        """Targets whose address is no longer in the answer."""
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
        self._sources: Final[dict[ServerAddress, ServerSource]] = {}
        for server in given:
            self._add(server, is_given=True)

    def _add(self, server: ServerAddress, *, is_given: bool) -> None:
        self._sources[server] = ServerSource(server, is_given=is_given, schedule=self._new_schedule())

    def _new_schedule(self) -> SyncSchedule:
        return SyncSchedule(self._interval_seconds, self._cap_seconds)

    def sources(self) -> list[ServerSource]:
        return list(self._sources.values())

    def targets(self) -> list[ServerTarget]:
        return [target for source in self._sources.values() for target in source.targets.values()]

    def leads_to(self, link: Hashable) -> bool:
        return any(link in target.links for target in self.targets())

    def link_lost(self, link: Hashable) -> None:
        for target in self.targets():
            target.lost(link)

    def failed(self, target: ServerTarget, now: float, draw: float) -> None:
        target.failed(now, draw)
        source = self._sources.get(target.server)
        if source is not None:
            source.look_again(now)

    def publish(self, servers: Sequence[ServerAddress], incomplete: Collection[ServerAddress] = ()) -> None:
        """Replace the published servers; behind those in `incomplete` a published ID is not connected yet."""
        published = set(servers)
        for source in self._sources.values():
            source.hides_servers = source.server in incomplete
            if not source.is_given:
                source.is_named = source.server in published
        for server in servers:
            if server not in self._sources:
                self._add(server, is_given=False)
                self._sources[server].hides_servers = server in incomplete

    def hasten_published(self) -> None:
        """A lease was written: dial published servers that are not connected."""
        for source in self._sources.values():
            if not source.is_given:
                for target in source.targets.values():
                    if not target.links:
                        target.hasten()

    def tidy(self, now: float) -> None:
        """Add targets for new addresses. Drop missing ones: at once if not connected, else after MISSING_SECONDS."""
        for source in self.sources():
            for address in source.unknown():
                source.targets[address] = ServerTarget(source.server, address, self._new_schedule())
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

    def looks_due(self, now: float) -> list[ServerSource]:
        return [
            source
            for source in self._sources.values()
            if source.is_named and not source.is_busy and source.look_due_at <= now
        ]

    def dials_due(self, now: float, wants_more: bool) -> list[ServerTarget]:
        """Return the targets to dial now. `wants_more` includes connected load balancers."""
        return [target for target in self._wanted(wants_more) if target.due_at <= now]

    def next_due_at(self, wants_more: bool) -> float:
        """Return when the next lookup or dial is due."""
        looks = [source.look_due_at for source in self._sources.values() if source.is_named and not source.is_busy]
        return min([*looks, *(target.due_at for target in self._wanted(wants_more))], default=float("inf"))

    def _wanted(self, wants_more: bool) -> list[ServerTarget]:
        """A connected address is dialed again only for servers that are behind it by count or by lease."""
        return [
            target
            for source in self._sources.values()
            for target in source.targets.values()
            if not target.is_busy and (not target.links or (wants_more and source.is_given) or source.hides_servers)
        ]

    def hopes(self) -> int:
        """Return how many more servers the unconnected addresses may lead to.

        A failing address does not count beside a connected one of the same name: both may be one load balancer.
        """
        return sum(map(_hopes_of, self._sources.values()))

    def is_alone(self, target: ServerTarget) -> bool:
        return self.targets() == [target]


def _hopes_of(source: ServerSource) -> int:
    if not source.targets:
        return 1 if source.is_named else 0
    is_served = source.is_served()
    return sum(not target.links and not (target.is_failing and is_served) for target in source.targets.values())
