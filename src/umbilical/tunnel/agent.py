"""Keeps the agent connected to every server: the sync loop, duplicates, drain.

Links are held and removed by identity: a late end of an old one never closes the new one to the same server (C5).
"""

import asyncio
import logging
import random
from pathlib import Path
from typing import Final

from umbilical.konnectivity import metadata
from umbilical.konnectivity.backoff import SyncSchedule
from umbilical.tunnel import causes, outbound
from umbilical.tunnel.channel import TlsChannel
from umbilical.tunnel.dialing import DialDesk, Resolver
from umbilical.tunnel.endpoint import Workshop
from umbilical.tunnel.interfaces import ServerCounter
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.metrics import AgentGauges, AgentMetrics
from umbilical.tunnel.peer_certificate import explain
from umbilical.tunnel.server_link import LinkKeeper, ServerLink
from umbilical.tunnel.settings import AgentSettings
from umbilical.tunnel.tls import agent_context

logger = logging.getLogger(__name__)

HELLO_SECONDS: Final = 20.0
"""For TCP, TLS and the server's hello together; grpc-go's connect deadline. Upstream waits for the hello for ever."""


class ConnectFailed(Exception):
    """This attempt is over; the text says at which hop and why."""


class Agent(LinkKeeper):
    def __init__(self, settings: AgentSettings, loop: Loop, resolver: Resolver) -> None:
        self.settings: Final = settings
        self.metrics: Final = AgentMetrics()
        self.draining = False
        self.counter: ServerCounter | None = None
        """Counts servers by their leases, where that is wanted."""
        self._loop: Final = loop
        self._context: Final = agent_context(settings.tls, settings.alpn_protocols)
        desk = DialDesk(loop, resolver, settings.dial_timeout_seconds, settings.limits.concurrent_dials)
        self._desk: Final = desk
        self._workshop: Final = Workshop(loop, desk, settings.limits, self.metrics)
        self._links: Final[dict[str, ServerLink]] = {}
        """One per server ID, serving."""
        self._leaving: Final[set[ServerLink]] = set()
        """Their servers said goodbye; tunnels go on until they end."""
        self._hellos: Final[dict[ServerLink, asyncio.Future[None]]] = {}
        self._announced_count = 1
        self._attempted_at = 0.0
        self._told_reason = ""
        self._explanation = ""
        self._wake: Final = asyncio.Event()

    # ------------------------------------------------------------------ what others ask

    def is_ready(self) -> bool:
        return bool(self._links)

    def gauges(self) -> AgentGauges:
        links = [*self._links.values(), *self._leaving]
        return AgentGauges(
            open_server_connections=len(self._links),
            known_server_count=self.server_count(),
            open_endpoint_connections=sum(link.session.open_count() for link in links),
        )

    def server_count(self) -> int:
        """How many servers we want to be connected to."""
        counted = self.counter.server_count() if self.counter is not None else None
        if counted is None:
            return self._announced_count
        if self.settings.server_count_source == "max":
            return max(counted, self._announced_count)
        return max(counted, 1)

    def is_idle(self) -> bool:
        """Neither tunnel nor dial exists anywhere."""
        return all(link.is_idle() for link in [*self._links.values(), *self._leaving])

    # ------------------------------------------------------------------ the sync loop

    async def keep_connected(self) -> None:
        """Runs until cancelled."""
        settings = self.settings
        schedule = SyncSchedule(settings.sync_interval_seconds, settings.sync_interval_cap_seconds)
        while True:
            seconds = await self._sync_once(schedule)
            self._leave_idle_leavers()
            self._wake.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
                    await self._until_the_beat()
            except TimeoutError:
                pass

    async def _until_the_beat(self) -> None:
        """A lost link is replaced at once, but a server that hangs up each time must not be hammered."""
        beat = self._attempted_at + self.settings.sync_interval_seconds
        await asyncio.sleep(max(0.0, beat - asyncio.get_running_loop().time()))

    async def _sync_once(self, schedule: SyncSchedule) -> float:
        held = len(self._links)
        if self.draining or (held >= self.server_count() and not self.settings.sync_forever):
            return schedule.after_success(random.random())
        try:
            fresh = await self._connect()
        except ConnectFailed as failed:
            await self._tell_failed(str(failed))
            return schedule.after_failure(random.random())
        return schedule.after_success(random.random()) if fresh else schedule.after_duplicate(random.random())

    async def _tell_failed(self, reason: str) -> None:
        cause = causes.of_failed_connect(reason)
        if reason != self._told_reason:  # the look costs a connection: once is enough
            self._told_reason = reason
            self._explanation = await explain(self.settings, cause.code)
        target = outbound.display(self.settings.server_host, self.settings.server_port)
        text = cause.text.removesuffix(".") + self._explanation if self._explanation else cause.text
        logger.warning("%s cannot connect to server=%s: %s", cause.code, target, text, extra=cause.fields)

    async def _connect(self) -> bool:
        """One attempt; False when it led to a server that we hold already."""
        settings = self.settings
        self._attempted_at = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                link = await self._open_link()
        except TimeoutError:
            raise ConnectFailed(f"no answer within {HELLO_SECONDS:g} s") from None
        hello = link.hello
        assert hello is not None
        if link.closed or link.leaving:  # told in the same read as the hello, before we could note the link
            link.lose("the server is leaving")
            raise ConnectFailed(f"server {hello.server_id} left right behind its hello")
        if hello.server_id in self._links:
            link.lose("duplicate: already connected to this server")
            return False
        self._told_reason = ""
        self._links[hello.server_id] = link
        self._announced_count = max(hello.server_count, 1)  # none at all would keep us away for ever
        link.keep_alive(settings.keepalive)
        logger.info("connected server=%s servers=%d/%d", hello.server_id, len(self._links), self.server_count())
        if self.draining:
            link.drain()
        return True

    def _leave_idle_leavers(self) -> None:
        """Close what its server only waits for: upstream's graceful stop lasts until the agent's stream has ended."""
        for link in list(self._leaving):
            if link.is_idle() and not link.has_unsent():
                link.lose("the server is leaving, and the last tunnel has ended")

    async def _open_link(self) -> ServerLink:
        settings = self.settings
        headers = metadata.agent_hello_headers(settings.agent_id, settings.agent_identifiers, self._read_token())
        try:
            sock = await outbound.connect(settings.server_host, settings.server_port)
        except OSError as error:
            raise ConnectFailed(f"TCP: {error.strerror or error}") from error
        channel = TlsChannel(self._loop, sock, self._context, settings.server_host)
        authority = outbound.display(settings.server_host, settings.server_port)
        link = ServerLink(channel, headers, authority, self, self._workshop)
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
            # Upstream loses this error and goes on without a stream.
            raise ConnectFailed(f"service account token {path}: {error.strerror or error}") from error
        except UnicodeDecodeError:
            raise ConnectFailed(f"service account token {path}: not text") from None  # it must not reach the log
        if not (token.isascii() and token.isprintable()):
            # Upstream's agent gives up on it too: most often it is the line end that an editor or a shell left.
            raise ConnectFailed(f"service account token {path}: no header can carry it: is there a line end in it?")
        return token

    # ------------------------------------------------------------------ what links report

    def link_ready(self, link: ServerLink) -> None:
        hello = self._hellos.get(link)
        if hello is not None and not hello.done():
            hello.set_result(None)

    def link_leaving(self, link: ServerLink) -> None:
        server_id = link.server_id()
        if self._links.get(server_id) is link:
            del self._links[server_id]
            self._leaving.add(link)
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
            self._wake.set()
        elif link not in self._leaving:
            return
        self._leaving.discard(link)
        if link.leaving or causes.is_orderly(reason):
            logger.info("connection over server=%s: %s", server_id, reason)
            return
        cause = causes.of_lost_server(reason)
        logger.warning("%s connection lost server=%s: %s", cause.code, server_id, reason, extra=cause.fields)

    # ------------------------------------------------------------------ leaving

    def drain(self) -> None:
        """First SIGTERM: servers prefer others from now on; everything that comes is still served."""
        self.draining = True
        for link in self._links.values():
            link.drain()

    async def until_idle(self) -> None:
        """Return once neither tunnel nor dial has existed for the linger."""
        linger = self.settings.drain_linger_seconds
        clock = asyncio.get_running_loop()
        idle_since = clock.time()
        while clock.time() - idle_since < linger:
            await asyncio.sleep(min(0.1, linger))
            if not self.is_idle():
                idle_since = clock.time()

    def close(self) -> None:
        for link in [*self._links.values(), *self._leaving, *self._hellos]:
            link.lose("agent is leaving")
