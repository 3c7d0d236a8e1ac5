"""The outbound side of a proxy: resolves a name and opens a connection through the tunnel, or directly.

Decides which resolver is used, and which destinations bypass the tunnel and when:
docs/decisions/0019-names-and-the-tunnel.md.
"""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from umbilical.dialer.failure import DialFailed
from umbilical.dialer.streams import Opener, Streams
from umbilical.fault import StartupError
from umbilical.proxies.direct import DirectDialer, DirectHosts
from umbilical.proxies.happy_eyeballs import Race, family_of, interleaved, only_ipv4
from umbilical.proxies.health import FAULTS_OF_THE_TUNNEL, TunnelHealth, WatchedTunnel
from umbilical.proxies.hosted_dns import PATIENCE, DnsPatience, DnsServers, HostedDns, parse_servers, parse_service
from umbilical.proxies.lookup import LookupFailed, LookupObserver, ManagementDns, SystemResolver, ask_system
from umbilical.proxies.metrics import DialObserver, observed
from umbilical.proxies.proxy_rules import ProxyRules, rules_of_environment
from umbilical.proxies.services import HostedServices, KubernetesServices, ServiceLookup, is_public
from umbilical.proxies.settings import OutboundSettings, Resolution
from umbilical.record import Record
from umbilical.tunnel.outbound import is_literal

ASKS_HOSTED_DNS: Final = frozenset({Resolution.HOSTED, Resolution.SERVICE, Resolution.HOSTED_THEN_MANAGEMENT})
ASKS_FOR_SERVICES: Final = frozenset({Resolution.SERVICE, Resolution.MANAGEMENT, Resolution.HOSTED_THEN_MANAGEMENT})
"""Management DNS has no Services of the hosted cluster, so its API is queried first, if there is a kubeconfig."""


class NameResolver:
    """Resolves names to addresses that are dialled through the tunnel."""

    def __init__(
        self, hosted: HostedDns | None, services: ServiceLookup | None, management: ManagementDns | None
    ) -> None:
        """Without the hosted cluster's DNS management DNS is used; without either, the agent resolves the name."""
        self._hosted: Final = hosted
        self._services: Final = services
        self._management: Final = management

    async def resolve(self, host: str) -> tuple[str, ...]:
        """Return all addresses, or the name itself if the agent resolves it. Raises DialFailed."""
        if is_literal(host):
            return (host,)
        found = await self.service_addresses(host)
        if found:
            return found
        if self._hosted is not None:
            return await self._hosted.resolve(host)
        if self._management is not None:
            return await self._management.resolve(host)
        return (host,)

    async def service_addresses(self, host: str) -> tuple[str, ...]:
        """Return the addresses of a Service; empty for other names, or if the API does not answer."""
        return () if self._services is None else await self._services.find(host)

    def forget(self, host: str) -> None:
        if self._hosted is not None:
            self._hosted.forget(host)

    async def close(self) -> None:
        if self._hosted is not None:
            await self._hosted.close()
        if self._services is not None:
            await self._services.close()


TUNNEL: Final = "tunnel"
DIRECT: Final = "direct"
TRIES: Final = 2
"""A second dial if the tunnel works after all: its agent or server was lost during the first."""


class Observer(LookupObserver, DialObserver, Protocol):
    """Counts lookups and dials."""


class OutboundSystem(Record):
    """Clock and this machine's resolver; tests replace them."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ask_system: SystemResolver = ask_system
    patience: DnsPatience = PATIENCE


SURROUNDINGS: Final = OutboundSystem()


def make_outbound(
    settings: OutboundSettings, opener: Opener, environment: Mapping[str, str], observer: Observer
) -> "Outbound":
    """Use the hosted cluster's API if there is a kubeconfig. Raises StartupError."""
    api = None if settings.kubeconfig is None else KubernetesServices(settings.kubeconfig)
    return Outbound(settings, opener, environment, api, observer)


class Outbound:
    """Implements Opener. Owns `lookups` and closes it."""

    def __init__(
        self,
        settings: OutboundSettings,
        opener: Opener,
        environment: Mapping[str, str],
        lookups: HostedServices | None,
        observer: Observer,
        surroundings: OutboundSystem = SURROUNDINGS,
    ) -> None:
        """Raises StartupError."""
        self._settings: Final = settings
        self._observer: Final = observer
        self._around: Final = surroundings
        self._lookups: Final = lookups
        self._health: Final = TunnelHealth(opener, surroundings.sleep)
        self._tunnel: Final = WatchedTunnel(opener, self._health)
        self._management: Final = ManagementDns(observer, surroundings.ask_system)
        self._names: Final = self._make_names()
        self._direct_hosts: Final = DirectHosts(settings.direct_suffixes, settings.never_direct)
        self._direct: Final = DirectDialer(self._rules(environment), self._management, prefer_ipv4=settings.prefer_ipv4)
        self._first_family: int = socket.AF_INET6

    @property
    def is_tunnel_healthy(self) -> bool:
        return self._health.is_healthy

    async def open(self, host: str, port: int) -> Streams:
        """Raises DialFailed."""
        if host in self._direct_hosts:
            return await observed(self._observer, DIRECT, self._direct.open(host, port))
        if self._may_fall_back(host):
            return await self._open_or_fall_back(host, port)
        return await self._open_by_tunnel(host, port)

    async def resolve(self, host: str) -> tuple[str, ...]:
        """Return the addresses that `open` would dial; empty if it would pass the name on. Raises DialFailed."""
        leaves = host in self._direct_hosts or (self._may_fall_back(host) and not self._health.is_healthy)
        found = () if leaves else await self._addresses(host)
        return () if found == (host,) and not is_literal(host) else found

    async def close(self) -> None:
        await self._health.close()
        await self._names.close()
        await self._management.close()
        if self._lookups is not None:
            await self._lookups.close()

    async def _open_by_tunnel(self, host: str, port: int) -> Streams:
        addresses = await self._addresses(host)
        try:
            return await observed(self._observer, TUNNEL, self._race(addresses, port))
        except DialFailed:
            self._names.forget(host)
            raise

    async def _addresses(self, host: str) -> tuple[str, ...]:
        found = await self._names.resolve(host)
        return (self._settings.prefer_ipv4 and only_ipv4(found)) or found

    async def _race(self, addresses: Sequence[str], port: int) -> Streams:
        race = Race(lambda address: self._tunnel.open(address, port), sleep=self._around.sleep)
        if len(addresses) == 1:
            return (await race.run(addresses))[1]
        winner, streams = await race.run(interleaved(addresses, self._first_family))
        if len({family_of(address) for address in addresses}) > 1:
            self._first_family = family_of(winner)  # many data planes have one family only
        return streams

    def _may_fall_back(self, host: str) -> bool:
        """Only public names: on this machine a name of the hosted cluster would lead to another host."""
        if self._settings.resolution is not Resolution.HOSTED_THEN_MANAGEMENT or self._direct_hosts.is_never(host):
            return False
        return is_public(host, self._settings.cluster_domain)

    async def _open_or_fall_back(self, host: str, port: int) -> Streams:
        failure: DialFailed | None = None
        for _ in range(TRIES):
            if not self._health.is_healthy:
                break
            proofs = self._health.proofs
            try:
                return await self._open_by_tunnel(host, port)
            except DialFailed as error:
                if not _needs_check(error):
                    raise
                failure = error
            await self._health.check(proofs)
        if failure is not None and self._health.is_healthy:
            raise failure
        if await self._names.service_addresses(host):
            return await self._open_by_tunnel(host, port)
        return await self._open_directly(host, port)

    async def _open_directly(self, host: str, port: int) -> Streams:
        broken = self._health.broken_by
        try:
            return await observed(self._observer, DIRECT, self._direct.open(_absolute(host), port))
        except LookupFailed as failure:
            if broken is None:
                raise
            text = f"{broken.text}; and without the tunnel: {failure.text}"
            raise DialFailed(broken.reason, broken.hop, text) from failure

    def _make_names(self) -> NameResolver:
        resolution, domain = self._settings.resolution, self._settings.cluster_domain
        hosted = self._make_hosted_dns() if resolution in ASKS_HOSTED_DNS else None
        services = None
        if self._lookups is not None and resolution in ASKS_FOR_SERVICES:
            services = ServiceLookup(self._lookups, domain, self._observer, self._around.now)
        elif resolution is Resolution.SERVICE:
            raise _needs_kubeconfig("--resolve service cannot look up Services")
        return NameResolver(hosted, services, self._management if resolution is Resolution.MANAGEMENT else None)

    def _make_hosted_dns(self) -> HostedDns:
        settings, around = self._settings, self._around
        given, service = parse_servers(settings.guest_dns), parse_service(settings.guest_dns_service)
        if not given and self._lookups is None:
            raise _needs_kubeconfig("the hosted cluster's DNS servers are not known")
        servers = DnsServers(given, service, self._lookups, around.now)
        return HostedDns(
            self._tunnel,
            servers,
            settings.cluster_domain,
            self._observer,
            around.now,
            around.patience,
            self._health.works,
        )

    def _rules(self, environment: Mapping[str, str]) -> ProxyRules:
        leaves = self._settings.direct_suffixes or self._settings.resolution is Resolution.HOSTED_THEN_MANAGEMENT
        return rules_of_environment(environment) if leaves else ProxyRules(None, None, "")


def _needs_check(failure: DialFailed) -> bool:
    """Return whether the tunnel may have failed. An answer, even NXDOMAIN, proves that it works."""
    if isinstance(failure, LookupFailed):
        return not failure.is_answer
    return failure.reason in FAULTS_OF_THE_TUNNEL


def _absolute(host: str) -> str:
    """Make a name absolute, so that this machine's search list is not used."""
    return f"{host}." if "." in host and not host.endswith(".") else host


def _needs_kubeconfig(what: str) -> StartupError:
    return StartupError(
        "UMB537",
        what,
        "no kubeconfig of the hosted cluster is given",
        "give --kubeconfig or --guest-dns, or use --resolve agent",
    )
