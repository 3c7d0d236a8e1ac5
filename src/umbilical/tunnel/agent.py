"""Keeps the agent connected to every server: concurrent attempts, duplicates, servers that leave, drain.

Links are removed by identity: a late end of an old one never closes the new one to the same server (fault
removed-by-id). `server_targets` decides which address is tried when.
"""

import asyncio
import logging
import random
from pathlib import Path
from typing import Final

from umbilical.konnectivity import metadata
from umbilical.tunnel import causes, certificates, faults, outbound
from umbilical.tunnel.certificate_dates import explain
from umbilical.tunnel.destinations import DestinationGate
from umbilical.tunnel.dialing import EndpointDialer, Resolver
from umbilical.tunnel.endpoint import EndpointContext
from umbilical.tunnel.interfaces import ServerCounter
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.metrics import AgentGauges, AgentMetrics
from umbilical.tunnel.round_trips import WindowBudget
from umbilical.tunnel.server_link import LinkKeeper, ServerLink
from umbilical.tunnel.server_targets import LOOK_AGAIN_SECONDS, ServerSource, ServerTarget, TargetBook
from umbilical.tunnel.settings import AgentSettings, ListenAddress, ServerAddress
from umbilical.tunnel.tls_channel import TlsChannel

logger = logging.getLogger(__name__)

HELLO_SECONDS: Final = 20.0
"""For TCP, TLS and the server's hello together: grpc-go's connect deadline. Upstream has no limit for the hello."""
LEAVER_SECONDS: Final = 0.05
"""Interval of checks for links that are closed once idle; their servers wait for that before they exit."""
GOODBYE_SECONDS: Final = 0.25
"""How long the link of a leaving server must be idle: a client that it accepted may still dial."""


class ConnectFailed(Exception):
    """An attempt failed; the text names the hop and the reason."""


class Agent(LinkKeeper):
    def __init__(self, settings: AgentSettings, loop: Loop, resolver: Resolver) -> None:
        self.settings: Final = settings
        self.metrics: Final = AgentMetrics()
        self.draining = False
        self.counter: ServerCounter | None = None
        """Counts servers by their leases, where configured."""
        self._loop: Final = loop
        self._certificates: Final = certificates.agent(settings, loop, self.metrics.certificates)
        limits = settings.limits
        listened = (settings.health_listen, settings.admin_listen)
        own_ports = frozenset(place.port for place in listened if isinstance(place, ListenAddress))
        gate = DestinationGate(settings.destinations, own_ports)
        self.gate: Final = gate
        dialer = EndpointDialer(
            loop, resolver, settings.dial_timeout_seconds, limits.concurrent_dials, limits.tcp_keepalive_seconds, gate
        )
        self._dialer: Final = dialer
        self.context: Final = EndpointContext(loop, dialer, limits, self.metrics, WindowBudget.of(limits))
        self.context.recent.start()
        self._book: Final = TargetBook(
            settings.servers, settings.sync_interval_seconds, settings.sync_interval_cap_seconds
        )
        self._links: Final[dict[str, ServerLink]] = {}
        """One per server ID, serving."""
        self._leaving: Final[dict[ServerLink, float]] = {}
        """Links that are closed once idle, and when each was last busy: the server is leaving, or has no target."""
        self._hellos: Final[dict[ServerLink, asyncio.Future[None]]] = {}
        self._announced_count = 1
        self._told_no_target = False
        self._wake: Final = asyncio.Event()

    def is_ready(self) -> bool:
        if self.settings.ready_servers == "any" or not self._links:
            return bool(self._links)
        return len(self._links) >= self.server_count() and not self._unserved()

    def _unserved(self) -> list[str]:
        """Addresses that lead to no connected server."""
        found = [source.server for source in self._book.sources() if source.is_named and not source.is_served()]
        return [outbound.display(server.host, server.port) for server in found]

    def why_unready(self) -> str:
        """For `/readyz`; upstream's words where there is no server at all."""
        if not self._links:
            return "no servers connected"
        unserved = ", ".join(self._unserved())
        return self.status() + (f", not reached: {unserved}" if unserved else "")

    def gauges(self) -> AgentGauges:
        return AgentGauges(
            open_server_connections=len(self._links),
            known_server_count=self.server_count(),
            open_endpoint_connections=sum(link.session.open_count() for link in self.links()),
            faults=self._loop.faults.counts,
            window_granted_bytes=self.context.window_budget.granted_bytes,
            window_budget_bytes=self.context.window_budget.total_bytes,
            denied_destinations=self.gate.denied,
        )

    def server_count(self) -> int:
        """Number of servers to connect to."""
        counted = self.counter.server_count() if self.counter is not None else None
        if counted is None:
            return self._announced_count
        if self.settings.server_count_source == "max":
            return max(counted, self._announced_count)
        return max(counted, 1)

    def links(self) -> list[ServerLink]:
        """Those that serve, then those to servers that are being left."""
        return [*self._links.values(), *self._leaving]

    def sources(self) -> list[ServerSource]:
        return self._book.sources()

    def watched_certificates(self) -> certificates.WatchedContext:
        return self._certificates

    def is_leaving(self, link: ServerLink) -> bool:
        return link in self._leaving

    def reload(self) -> None:
        """Look at certificates and destination rules now, for new handshakes and dials."""
        self._certificates.look()
        self.gate.look()

    def status(self) -> str:
        """One line for the service manager."""
        return f"servers connected: {len(self._links)} of {self.server_count()}"

    def is_idle(self) -> bool:
        """There is neither a tunnel nor a dial on any link."""
        return all(link.is_idle() for link in self.links())

    def leases_changed(self) -> None:
        """The set of leases has changed."""
        self._book.hasten_published()
        self._wake.set()

    async def keep_connected(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    await self._look_around(tasks)
                except Exception as error:
                    self._note(error)
                    await asyncio.sleep(self.settings.sync_interval_seconds)

    async def _look_around(self, tasks: asyncio.TaskGroup) -> None:
        self._wake.clear()
        self._follow_leases()
        now = asyncio.get_running_loop().time()
        self._book.tidy(now)
        self._leave_where_nothing_leads(now)
        self._close_idle_leavers(now)
        if not self.draining:
            self._start_due(tasks, now)
        await self._rest(now)

    def _note(self, error: Exception) -> None:
        """A bug: tunnels go on, and the next attempt comes in its time."""
        self._loop.faults.note(faults.TASK, error, self._loop.now)

    async def _rest(self, now: float) -> None:
        """Sleep until something is due or happens; at most one interval, since leases expire without an event."""
        seconds = self.settings.sync_interval_seconds
        if self._leaving:
            seconds = min(seconds, LEAVER_SECONDS)
        if not self.draining:
            seconds = min(seconds, max(0.0, self._book.next_due_at(self._wants_more()) - now))
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _follow_leases(self) -> None:
        if self.counter is None:
            return
        published = self.counter.published_ids()
        self._book.publish(
            [ServerAddress(host, port) for host, port in self.counter.published_addresses()],
            {ServerAddress(*place) for place, ids in published.items() if any(one not in self._links for one in ids)},
        )
        if self._book.sources() or self.counter.server_count() is None:
            self._told_no_target = False
        elif not self._told_no_target:
            self._told_no_target = True
            cause = causes.of_no_target()
            logger.warning("%s %s", cause.code, cause.text, extra=cause.fields)

    def _wants_more(self) -> bool:
        """Whether to look for more servers behind addresses that are connected already.

        Only if there are fewer addresses than servers: then one address leads to several servers.
        """
        return self.settings.sync_forever or len(self._links) + self._book.hopes() < self.server_count()

    def _start_due(self, tasks: asyncio.TaskGroup, now: float) -> None:
        for source in self._book.looks_due(now):
            source.is_busy = True
            tasks.create_task(self._look_up(source))
        for target in self._book.dials_due(now, self._wants_more()):
            target.begin(now)
            tasks.create_task(self._try(target))

    async def _look_up(self, source: ServerSource) -> None:
        host, port = source.server.host, source.server.port
        clock = asyncio.get_running_loop()
        try:
            if outbound.is_proxied(host, port):
                source.resolved([None], float("inf"))
            else:
                async with asyncio.timeout(HELLO_SECONDS):
                    addresses = await outbound.look_up(host, port)
                again = float("inf") if outbound.is_literal(host) else clock.time() + LOOK_AGAIN_SECONDS
                source.resolved(addresses, again)
        except OSError as error:  # a TimeoutError is one
            source.unresolved(clock.time(), random.random())
            words = str(error) or f"lookup {host}: no answer within {HELLO_SECONDS:g} s"
            self._tell_unresolved(source, f"TCP: {words}")
        except Exception as error:
            self._note(error)
            source.unresolved(clock.time(), random.random())
        finally:
            source.is_busy = False
            self._wake.set()

    def _tell_unresolved(self, source: ServerSource, reason: str) -> None:
        is_news = reason != source.told_reason
        cause = causes.of_failed_connect(reason)
        source.told_reason, source.told_code = reason, cause.code
        self._tell_failed(outbound.display(source.server.host, source.server.port), cause, is_news)

    async def _try(self, target: ServerTarget) -> None:
        """Make one attempt and report its failure."""
        try:
            await self._connect(target)
        except ConnectFailed as failed:
            self._book.failed(target, asyncio.get_running_loop().time(), random.random())
            cause = causes.of_failed_connect(str(failed))
            is_news = cause.text != target.told_reason
            if is_news:  # `explain` opens a connection: once is enough
                target.told_reason = cause.text
                target.told_code = cause.code
                target.explanation = await explain(self.settings, target.server, target.address, cause.code)
            if target.explanation:
                cause = causes.FailureCause(cause.code, cause.text.removesuffix(".") + target.explanation)
            self._tell_failed(target.name(), cause, is_news)
        except Exception as error:
            self._note(error)
            self._book.failed(target, asyncio.get_running_loop().time(), random.random())
        finally:
            target.is_busy = False
            self._wake.set()

    def _tell_failed(self, name: str, cause: causes.FailureCause, is_news: bool) -> None:
        """Log every failure while no server is connected; otherwise each new reason once."""
        level = logging.WARNING if is_news or not self._links else logging.DEBUG
        logger.log(level, "%s cannot connect to server=%s: %s", cause.code, name, cause.text, extra=cause.fields)

    async def _connect(self, target: ServerTarget) -> None:
        """Open a link and keep it, unless its server is connected already."""
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                link = await self._open_link(target)
        except TimeoutError:
            raise ConnectFailed(f"no answer within {HELLO_SECONDS:g} s") from None
        hello = link.hello
        assert hello is not None
        if link.closed or link.leaving:  # a GOAWAY in the same read as the hello
            link.lose("the server is leaving")
            raise ConnectFailed(f"server {hello.server_id} left right after its hello")
        held = self._links.get(hello.server_id)
        if held is not None:
            link.lose("duplicate: already connected to this server")
            target.found_again(held, random.random(), is_alone=self._book.is_alone(target))
            return
        target.found(link, random.random())
        link.since = self._loop.now
        self._links[hello.server_id] = link
        self._announced_count = max(hello.server_count, 1)  # 0 would keep the agent away for ever
        link.keep_alive(self.settings.keepalive)
        if self.context.events.heard:
            self.context.events.server_came(hello.server_id, link.channel.peer())
        logger.info("connected server=%s servers=%d/%d", hello.server_id, len(self._links), self.server_count())
        if self.draining:
            link.drain()

    async def _open_link(self, target: ServerTarget) -> ServerLink:
        settings = self.settings
        host, port = target.server.host, target.server.port
        headers = metadata.agent_hello_headers(
            settings.agent_id,
            settings.agent_identifiers,
            self._read_token(),
            streams=settings.limits.own_streams,
        )
        try:
            sock = await outbound.connect(host, port, target.address)
        except OSError as error:
            raise ConnectFailed(f"TCP: {error.strerror or error}") from error
        channel = TlsChannel(self._loop, sock, self._certificates.context(), host)
        link = ServerLink(channel, headers, outbound.display(host, port), self, self.context)
        hello = asyncio.get_running_loop().create_future()
        self._hellos[link] = hello
        link.start()
        try:
            await hello
        except BaseException:
            link.lose("given up")
            raise
        finally:
            self._hellos.pop(link, None)
        return link

    def _read_token(self) -> str | None:
        path = self.settings.token_path
        if path is None:
            return None
        try:
            token = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            # Upstream drops this error and goes on without a stream.
            raise ConnectFailed(f"service account token {path}: {error.strerror or error}") from error
        except UnicodeDecodeError:
            raise ConnectFailed(f"service account token {path}: not text") from None  # the token must not reach the log
        if not (token.isascii() and token.isprintable()):
            # Upstream's agent rejects it too; usually an editor or a shell left a line end.
            raise ConnectFailed(
                f"service account token {path}: not valid in a header: has it a line end or a byte order mark?"
            )
        return token

    def _leave_where_nothing_leads(self, now: float) -> None:
        """Leave servers that no name and no lease leads to, but never the last one (fault surplus-connections)."""
        for server_id, link in list(self._links.items()):
            if len(self._links) > 1 and not self._book.leads_to(link):
                logger.info("leaving server=%s: no name and no lease leads to it any more", server_id)
                del self._links[server_id]
                self._leaving[link] = now
                link.drain()

    def _close_idle_leavers(self, now: float) -> None:
        """Close idle links of leaving servers: upstream's graceful stop waits for the agent's stream to end."""
        for link, busy_at in list(self._leaving.items()):
            if not link.is_idle() or link.has_unsent():
                self._leaving[link] = now
            elif link.leaving and now - busy_at >= GOODBYE_SECONDS:
                link.lose("the server is leaving, and the last tunnel has ended")
            elif now - busy_at >= self.settings.drain_linger_seconds:
                link.lose("agent is leaving this server: nothing leads to it any more")

    def link_ready(self, link: ServerLink) -> None:
        hello = self._hellos.get(link)
        if hello is not None and not hello.done():
            hello.set_result(None)

    def link_leaving(self, link: ServerLink) -> None:
        server_id = link.server_id()
        if self._links.get(server_id) is link:
            del self._links[server_id]
            self._leaving[link] = asyncio.get_running_loop().time()
            self._book.link_lost(link)
            self._wake.set()

    def link_over(self, link: ServerLink, reason: str) -> None:
        hello = self._hellos.get(link)
        if hello is not None:
            if not hello.done():
                hello.set_exception(ConnectFailed(reason))
            return
        server_id = link.server_id()
        if self._links.get(server_id) is link:
            del self._links[server_id]
        elif link not in self._leaving:
            return
        self._leaving.pop(link, None)
        self._book.link_lost(link)
        self._wake.set()
        if self.context.events.heard:
            self.context.events.server_left(server_id, reason)
        if link.leaving or causes.is_orderly(reason):
            logger.info("connection over server=%s: %s", server_id, reason)
            return
        cause = causes.of_lost_server(reason)
        logger.warning("%s connection lost server=%s: %s", cause.code, server_id, reason, extra=cause.fields)

    def drain(self) -> None:
        """First SIGTERM: servers prefer other agents from now on; new dials are still served."""
        self.draining = True
        for link in self._links.values():
            link.drain()

    async def until_idle(self) -> None:
        """Return once there was neither a tunnel nor a dial for `drain_linger_seconds`."""
        linger = self.settings.drain_linger_seconds
        clock = asyncio.get_running_loop()
        idle_since = clock.time()
        while clock.time() - idle_since < linger:
            await asyncio.sleep(min(0.1, linger))
            if not self.is_idle():
                idle_since = clock.time()

    def close(self) -> None:
        self._certificates.stop()
        self.context.recent.stop()
        for link in [*self.links(), *self._hellos]:
            link.lose("agent is leaving")
