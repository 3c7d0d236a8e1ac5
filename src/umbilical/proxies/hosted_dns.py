"""The hosted cluster's DNS, queried through the tunnel: TCP, one connection per server, answers cached for their TTL.

Its servers are given, or looked up by its Service, again after each failure. Names are absolute: no search list, hosts
file or resolver setting of this machine is used.
"""

import asyncio
import importlib.util
from collections.abc import Callable, Iterable
from typing import Final

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.streams import Opener
from umbilical.fault import StartupError
from umbilical.konnectivity.dial_failure import join_host_port
from umbilical.proxies.dns_client import AAAA, A, ConnectionLost, DnsAnswer, DnsConnection, DnsError, DnsQuery, NotAName
from umbilical.proxies.health import FAULTS_OF_THE_TUNNEL
from umbilical.proxies.lookup import Cache, LookupFailed, LookupObserver, LookupResult, LookupSource, SharedWork
from umbilical.proxies.services import HostedServices, ServiceName, absolute_names, ask_api
from umbilical.record import Record
from umbilical.tunnel.daemon import own_task
from umbilical.tunnel.outbound import is_literal

PORT: Final = 53
HOP: Final = "the hosted cluster's DNS"
LOOK_AGAIN_SECONDS: Final = 1.0
"""Shortest interval between API requests, however many lookups fail."""

DnsAddress = tuple[str, int]


def parse_servers(given: tuple[str, ...]) -> tuple[DnsAddress, ...]:
    """Raises StartupError."""
    return tuple(map(_parse_server, given))


def parse_service(text: str) -> ServiceName:
    """Raises StartupError."""
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise StartupError(
            "UMB535",
            f"invalid Service of the hosted cluster's DNS: {text!r}",
            "it does not have the form NAMESPACE/NAME",
            "use --guest-dns-service openshift-dns/dns-default or kube-system/kube-dns",
        )
    return ServiceName(namespace, name)


def _parse_server(text: str) -> DnsAddress:
    host, port = text, str(PORT)
    if text.startswith("[") and "]" in text:
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":") if rest else port
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not is_literal(host) or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise StartupError(
            "UMB534",
            f"invalid address of the hosted cluster's DNS: {text!r}",
            "it is not an IP address with an optional port",
            "use --guest-dns IP, IP:PORT or [IPv6]:PORT",
        )
    return host, int(port)


class DnsServers:
    def __init__(
        self,
        given: tuple[DnsAddress, ...],
        service: ServiceName,
        api: HostedServices | None,
        now: Callable[[], float],
    ) -> None:
        self._given: Final = given
        self._service: Final = service
        self._api: Final = api
        self._now: Final = now
        self._found: tuple[DnsAddress, ...] = ()
        self._is_stale = True
        self._asked_at: float | None = None
        self._failure: LookupFailed | None = None
        self._asking: Final = asyncio.Lock()

    async def current(self) -> tuple[DnsAddress, ...]:
        """Return at least one server. Raises LookupFailed."""
        if self._given:
            return self._given
        async with self._asking:
            if self._is_due():
                await self._ask()
        if not self._found:
            assert self._failure is not None
            raise self._failure
        return self._found

    def invalidate(self) -> None:
        """Look the Service up again: none of the servers answered, so its address may have changed."""
        self._is_stale = True

    def _is_due(self) -> bool:
        if self._asked_at is not None and self._now() < self._asked_at + LOOK_AGAIN_SECONDS:
            return False
        return self._is_stale or not self._found

    async def _ask(self) -> None:
        """Query the API; if it fails, the servers found before stay in use."""
        try:
            self._found = tuple((address, PORT) for address in await self._addresses())
            self._is_stale = False
        except LookupFailed as failure:
            self._failure = failure
        self._asked_at = self._now()

    async def _addresses(self) -> tuple[str, ...]:
        """Raises LookupFailed."""
        hop = str(self._service)
        if self._api is None:
            raise LookupFailed(LookupResult.FAILED, hop, "there is no kubeconfig to look it up")
        found = await ask_api(self._api, self._service)
        if not found:
            words = "the Service does not exist" if found is None else "the Service has no ClusterIP"
            raise LookupFailed(LookupResult.FAILED, hop, words)
        return found


ROUNDS: Final = 2
"""Attempts per server before a lookup fails; the second on a new connection."""
LONGEST_ALIAS_CHAIN: Final = 8
LONGEST_KEPT_SECONDS: Final = 300.0
"""Limit for long TTLs."""
LONGEST_ABSENCE_SECONDS: Final = 30.0
"""Limit for negative TTLs (RFC 2308): names that are missing while a cluster starts must be found soon."""


class DnsPatience(Record):
    try_seconds: float = 5.0
    """Timeout for one query to one server, including the dial."""
    lookup_seconds: float = 20.0
    """Timeout for one lookup: all servers and aliases."""
    grace_seconds: float = 0.25
    """How long to wait for the other address family after the first answer."""


PATIENCE: Final = DnsPatience()
DnsQuestion = tuple[str, str]
"""Absolute name and record type."""


class HostedDns:
    def __init__(
        self,
        tunnel: Opener,
        servers: DnsServers,
        cluster_domain: str,
        observer: LookupObserver,
        now: Callable[[], float],
        patience: DnsPatience = PATIENCE,
        answered: Callable[[], None] = lambda: None,
    ) -> None:
        """`tunnel` is used only for DNS; `answered` is called for every answer through it."""
        _require_dnspython()
        self._tunnel: Final = tunnel
        self._servers: Final = servers
        self._domain: Final = cluster_domain
        self._observer: Final = observer
        self._patience: Final = patience
        self._answered: Final = answered
        self._cache: Final = Cache[DnsQuestion, DnsAnswer](now)
        self._lookups: Final = SharedWork[DnsQuestion, DnsAnswer]()
        self._openings: Final = SharedWork[DnsAddress, DnsConnection]()
        self._connections: Final[dict[DnsAddress, DnsConnection]] = {}
        self._failed: Final[list[DnsAddress]] = []

    async def resolve(self, host: str) -> tuple[str, ...]:
        """Return all addresses of both families, at least one. Raises LookupFailed, or DialFailed of the tunnel."""
        names = absolute_names(host, self._domain)
        result = LookupResult.CACHED if self._is_known(names) else LookupResult.OK
        try:
            addresses = await self._first_found(names)
        except DialFailed as failure:
            kind = failure.result if isinstance(failure, LookupFailed) else LookupResult.FAILED
            self._observer.looked_up(LookupSource.HOSTED.value, kind.value)
            raise
        self._observer.looked_up(LookupSource.HOSTED.value, result.value)
        return addresses

    def forget(self, host: str) -> None:
        """Remove a name from the cache: its addresses did not answer."""
        for name in absolute_names(host, self._domain):
            for kind in (A, AAAA):
                self._cache.forget((name, kind))

    async def close(self) -> None:
        await self._lookups.close()
        await self._openings.close()
        for connection in self._connections.values():
            await connection.close()

    def _is_known(self, names: Iterable[str]) -> bool:
        for name in names:
            known = [self._cache.get((name, kind)) for kind in (A, AAAA)]
            if any(answer is None for answer in known):
                return False
            if any(answer is not None and answer.addresses for answer in known):
                return True
        return True

    async def _first_found(self, names: Iterable[str]) -> tuple[str, ...]:
        absent: LookupFailed | None = None
        for name in names:
            try:
                return await self._both_families(name)
            except LookupFailed as failure:
                if failure.result is not LookupResult.ABSENT:
                    raise
                absent = failure
        assert absent is not None
        raise absent

    async def _both_families(self, name: str) -> tuple[str, ...]:
        asked = [own_task(self._answer((name, kind))) for kind in (AAAA, A)]
        try:
            done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            if waiting:
                enough = any(task.exception() is None and task.result().addresses for task in done)
                await asyncio.wait(waiting, timeout=self._patience.grace_seconds if enough else None)
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return _merged(name, [task for task in asked if not task.cancelled()])

    async def _answer(self, question: DnsQuestion) -> DnsAnswer:
        known = self._cache.get(question)
        if known is not None:
            return known
        return await self._lookups.run(question, lambda: self._look_up(question))

    async def _look_up(self, question: DnsQuestion) -> DnsAnswer:
        try:
            async with asyncio.timeout(self._patience.lookup_seconds):
                answer = await self._follow(question)
        except TimeoutError:
            text = f"{question[0]}: no answer within {self._patience.lookup_seconds:g} s"
            raise LookupFailed(LookupResult.TIMEOUT, HOP, text) from None
        longest = LONGEST_KEPT_SECONDS if answer.addresses else LONGEST_ABSENCE_SECONDS
        self._cache.put(question, answer, min(answer.seconds, longest))
        return answer

    async def _follow(self, question: DnsQuestion) -> DnsAnswer:
        name, kind = question
        seconds = LONGEST_KEPT_SECONDS
        for _ in range(LONGEST_ALIAS_CHAIN):
            answer = await self._ask_servers(name, kind)
            seconds = min(seconds, answer.seconds)
            if not answer.alias:
                return DnsAnswer(answer.addresses, seconds)
            name = answer.alias
        raise LookupFailed(LookupResult.FAILED, HOP, f"{question[0]}: more than {LONGEST_ALIAS_CHAIN} aliases")

    async def _ask_servers(self, name: str, kind: str) -> DnsAnswer:
        try:
            query = DnsQuery(name, kind)
        except NotAName as error:
            raise LookupFailed(LookupResult.ABSENT, repr(name), f"not a name: {error}") from None
        failure: DialFailed | None = None
        for server in self._ranked(await self._servers.current()) * ROUNDS:
            try:
                return await self._ask_server(server, query)
            except DialFailed as error:
                failure = error
            if failure.reason in (DialReason.SERVER, DialReason.TLS):
                break  # other DNS servers are unreachable too
        self._servers.invalidate()
        assert failure is not None
        raise failure

    async def _ask_server(self, server: DnsAddress, query: DnsQuery) -> DnsAnswer:
        """Raises LookupFailed, or DialFailed if the tunnel failed."""
        hop = f"DNS server {join_host_port(*server)}"
        try:
            answer = await self._exchange(server, query)
        except TimeoutError:
            self._retire(server)
            text = f"{query.name}: no answer within {self._patience.try_seconds:g} s"
            failure: DialFailed = LookupFailed(LookupResult.TIMEOUT, hop, text)
        except (ConnectionLost, DnsError) as error:
            failure = LookupFailed(LookupResult.FAILED, hop, f"{query.name}: {error}")
        except DialFailed as error:
            at_fault = error.reason in FAULTS_OF_THE_TUNNEL
            failure = error if at_fault else LookupFailed(LookupResult.FAILED, hop, f"{query.name}: {error.text}")
        else:
            self._mark_working(server)
            return answer
        self._mark_failed(server)
        raise failure

    async def _exchange(self, server: DnsAddress, query: DnsQuery) -> DnsAnswer:
        async with asyncio.timeout(self._patience.try_seconds):
            connection = await self._connection(server)
            wire = await connection.ask(query.encode)
        self._answered()
        return query.decode(wire)

    async def _connection(self, server: DnsAddress) -> DnsConnection:
        connection = self._connections.get(server)
        if connection is not None and connection.is_usable:
            return connection
        return await self._openings.run(server, lambda: self._open(server))

    async def _open(self, server: DnsAddress) -> DnsConnection:
        streams = await self._tunnel.open(*server)
        connection = self._connections[server] = DnsConnection(streams)
        return connection

    def _retire(self, server: DnsAddress) -> None:
        connection = self._connections.get(server)
        if connection is not None:
            connection.retire()

    def _ranked(self, servers: tuple[DnsAddress, ...]) -> tuple[DnsAddress, ...]:
        """Return the servers in the order given; those that failed come last, the latest failure at the end."""
        rank = {server: position for position, server in enumerate(self._failed)}
        return tuple(sorted(servers, key=lambda server: rank.get(server, -1)))

    def _mark_failed(self, server: DnsAddress) -> None:
        self._mark_working(server)
        self._failed.append(server)

    def _mark_working(self, server: DnsAddress) -> None:
        if server in self._failed:
            self._failed.remove(server)


def _merged(name: str, asked: "list[asyncio.Task[DnsAnswer]]") -> tuple[str, ...]:
    failures = [error for task in asked if (error := task.exception()) is not None]
    addresses = tuple(address for task in asked if task.exception() is None for address in task.result().addresses)
    if addresses:
        return addresses
    if failures:
        raise failures[0]
    raise LookupFailed(LookupResult.ABSENT, HOP, f"{name}: the name does not exist, or has no address")


def _require_dnspython() -> None:
    if importlib.util.find_spec("dns") is None:
        raise StartupError(
            "UMB536",
            "the hosted cluster's DNS cannot be queried",
            "the library dnspython is not installed",
            "pip install 'umbilical[hosted]'; or use --resolve agent",
        )
