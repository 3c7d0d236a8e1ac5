"""Where agents and clients meet: carries events to the switchboard and obeys its commands.

It knows no sockets of its own; transports and clients hang on it.
"""

import logging
import random
import ssl
from typing import Final, cast

from umbilical.konnectivity.commands import (
    CloseTunnel,
    Command,
    CountDialFailure,
    OpenTunnel,
    RefuseDial,
    RetireAgent,
    TellHealth,
    TellRedial,
    ToAgent,
)
from umbilical.konnectivity.dial_failure import DialFailure, FailureReason, failure_code, grpc_error_text
from umbilical.konnectivity.links import ENDED, AgentLink, Tunnel
from umbilical.konnectivity.routing import Switchyard
from umbilical.konnectivity.switchboard import Switchboard
from umbilical.tunnel import causes, notices
from umbilical.tunnel.backlog import STUCK_SECONDS
from umbilical.tunnel.client import Client
from umbilical.tunnel.identities import AgentGate, ClientGate
from umbilical.tunnel.linger import LingerRoom
from umbilical.tunnel.loop import Deadlines, Handler, Loop
from umbilical.tunnel.metrics import ServerGauges, ServerMetrics
from umbilical.tunnel.notices import DialNotices, Hush
from umbilical.tunnel.settings import ServerSettings
from umbilical.tunnel.transport import Transport
from umbilical.wire import packets
from umbilical.wire.packets import DialResponse

logger = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 20.0
"""For a TLS handshake. grpc-go allows 120; nobody honest needs them."""
FLUSH_SECONDS: Final = 60.0
"""How long a client may take to read the last bytes of a tunnel that has ended."""
SWEEP_SECONDS: Final = 0.25
UNLIMITED_STALL_SECONDS: Final = 5.0
"""Where dials have no time limit: after so long they leave an agent that takes no packets for another."""


class AgentShell:
    """What the exchange needs of an agent's stream: `AgentLink.shell` is one."""

    def send(self, kind: int, message: bytes) -> None:
        raise NotImplementedError

    def is_stalled(self, now: float, seconds: float) -> bool:
        """The same bytes have waited so long. Asked from time to time; that bytes wait right now means nothing."""
        raise NotImplementedError

    def retire(self, reason: str) -> None:
        """End this stream from our side."""
        raise NotImplementedError


class Exchange(Handler):
    def __init__(self, loop: Loop, settings: ServerSettings) -> None:
        self.loop: Final = loop
        self.settings: Final = settings
        self.metrics: Final = ServerMetrics()
        self.board: Final = Switchboard(Switchyard(settings.strategies))
        self.lingering: Final = LingerRoom(loop)
        self.handshakes: Final = Deadlines(loop, HANDSHAKE_SECONDS)
        self.flushing: Final = Deadlines(loop, FLUSH_SECONDS)
        self.stuck: Final = Deadlines(loop, STUCK_SECONDS)
        self.half_closed: Final = Deadlines(loop, settings.limits.half_closed_idle_seconds)
        self.links: Final[dict[int, AgentLink]] = {}
        self.transports: Final[set[Transport]] = set()
        self.clients: Final[set[Client]] = set()
        """Of http-connect mode, from their first byte to their last."""
        self.proxy_streams = 0
        self.agent_gate: Final = AgentGate(settings.agent_identities, settings.token_identity)
        self.client_gate: Final = ClientGate(settings.frontend_identities)
        self._last_key = 0
        self._last_dial_id = random.getrandbits(26)
        self._sweeping = False
        self._notices: Final = DialNotices()
        self.hush: Final = Hush()
        """For what strangers at the agent port can cause."""

    def refuse_client(self, tls: ssl.SSLObject, peer: str) -> str:
        """Why this client gets no tunnels; empty if it does."""
        refusal = self.client_gate.refusal(tls)
        if refusal and self.hush.due(f"UMB414 {peer.rpartition(':')[0]}", self.loop.now) is not None:
            cause = causes.FailureCause("UMB414", refusal)
            logger.warning("%s client refused peer=%s: %s", cause.code, peer, refusal, extra=cause.fields)
        return refusal

    def next_key(self) -> int:
        self._last_key += 1
        return self._last_key

    def agent_connected(self, link: AgentLink) -> None:
        self.links[link.key] = link
        self.board.agent_connected(link)
        unusable = self.board.yard.unusable_networks(link)
        if unusable and self.hush.due(f"UMB413 {link.agent_id}", self.loop.now) is not None:
            notices.tell_networks(link, unusable)

    def agent_draining(self, link: AgentLink) -> None:
        logger.info("agent drains agent=%s", link.agent_id)
        self.board.agent_draining(link)

    def agent_silent(self, link: AgentLink) -> None:
        self._watch_time()
        self._obey(self.board.agent_silent(link, self.loop.now, random.getrandbits(30)))

    def agent_gone(self, link: AgentLink, reason: str) -> None:
        del self.links[link.key]
        self._tell_gone(link, reason)
        self._obey(self.board.agent_gone(link, f"agent lost: {reason}", random.getrandbits(30)))

    def _tell_gone(self, link: AgentLink, reason: str) -> None:
        if link.draining or causes.is_orderly(reason):
            logger.info("agent gone agent=%s tunnels=%d: %s", link.agent_id, len(link.connections), reason)
            return
        if not link.connections and any(other.agent_id == link.agent_id for other in self.links.values()):
            # It looks for further servers behind the same address, found us again, and keeps its first connection.
            logger.info("agent closed a second connection agent=%s: %s", link.agent_id, reason)
            return
        cause = causes.of_gone_agent(reason)
        logger.warning(
            "%s agent gone agent=%s tunnels=%d agents=%d: %s",
            cause.code,
            link.agent_id,
            len(link.connections),
            len(self.links),
            reason,
            extra=cause.fields,
        )

    def agent_answered(self, link: AgentLink, answer: DialResponse) -> None:
        self._obey(self.board.agent_answered(link, answer, self.loop.now))

    def agent_closed(self, link: AgentLink, connection_id: int, error: str) -> None:
        self._obey(self.board.agent_closed(link, connection_id, error))

    def agent_cancelled_dial(self, link: AgentLink, dial_id: int) -> None:
        self._obey(self.board.agent_cancelled_dial(link, dial_id))

    def orphan_data(self, link: AgentLink, connection_id: int) -> None:
        self._obey(self.board.orphan_data(link, connection_id))

    def transport_closed(self, transport: Transport) -> None:
        self.handshakes.discard(transport)
        self.transports.discard(transport)

    def dial(self, client: Client, protocol: str, address: str, dial_id: int) -> Tunnel:
        tunnel = Tunnel(client, dial_id, address, self.loop.now)
        client.tunnel = tunnel
        self._watch_time()
        self._obey(self.board.dialled(tunnel, protocol, random.getrandbits(30)))
        return tunnel

    def next_dial_id(self) -> int:
        """For clients that bring none. Upstream draws 63 random bits; unique within this server is enough."""
        self._last_dial_id += 1
        return self._last_dial_id

    def client_closed(self, tunnel: Tunnel) -> None:
        """It asked to close, or went away; the answer, if it can still hear one, comes by `Client.closed`."""
        self._watch_time()
        self._obey(self.board.client_closed(tunnel, self.loop.now))

    def stream_over(self, tunnel: Tunnel) -> None:
        """A tunnel with a stream of its own is over, and its agent knows by the stream."""
        if tunnel.link is not None:
            self._obey(self.board.agent_closed(tunnel.link, tunnel.connection_id, ""))

    def pause_sender(self, tunnel: Tunnel) -> bool:
        """Ask the agent to stop reading the endpoint; False when it does not understand."""
        link = tunnel.link
        if link is None or not link.understands_pause:
            return False
        self._to_agent(link, packets.PAUSE, packets.encode_pause(tunnel.connection_id))
        return True

    def resume_sender(self, tunnel: Tunnel) -> None:
        link = tunnel.link
        if link is not None and tunnel.state != ENDED:
            self._to_agent(link, packets.RESUME, packets.encode_resume(tunnel.connection_id))

    def _obey(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, ToAgent):
                self._to_agent(command.link, command.kind, command.message)
            elif isinstance(command, OpenTunnel):
                tunnel = command.tunnel
                self.metrics.dial_seconds.observe(tunnel.opened_at - tunnel.asked_at)
                cast(Client, tunnel.client).opened(tunnel)
            elif isinstance(command, CloseTunnel):
                self._close(command)
            elif isinstance(command, RefuseDial):
                self._refuse(command.tunnel, command.failure)
            elif isinstance(command, CountDialFailure):
                self.metrics.dial_failed(command.reason)
            elif isinstance(command, RetireAgent):
                cast(AgentShell, command.link.shell).retire("agent takes no packets")
            elif isinstance(command, TellRedial):
                notices.tell_redial(command)
            elif isinstance(command, TellHealth):
                notices.tell_health(command)

    def _refuse(self, tunnel: Tunnel, failure: DialFailure) -> None:
        client = cast(Client, tunnel.client)
        text = grpc_error_text(failure)
        code = failure_code(failure)
        if failure.reason is FailureReason.NO_AGENT and not self.links:
            code = "UMB301"
        client.report(self.loop.now, text, code)
        if code:
            agent = tunnel.link.agent_id if tunnel.link is not None else "-"
            self._notices.refused(code, tunnel.address, agent, text, self.loop.now)
        client.refused(failure)

    def _close(self, command: CloseTunnel) -> None:
        tunnel = command.tunnel
        client = cast(Client, tunnel.client)
        self.metrics.connection_seconds.observe(self.loop.now - tunnel.opened_at)
        client.report(self.loop.now, command.cause)
        client.closed(command.error, command.cause)

    def _to_agent(self, link: AgentLink, kind: int, message: bytes) -> None:
        if kind <= packets.DRAIN:
            self.metrics.to_agent[kind] += 1
        cast(AgentShell, link.shell).send(kind, message)

    def _watch_time(self) -> None:
        """Something waits for an agent's answer from now on."""
        if not self._sweeping:
            self._sweeping = True
            self.loop.after(SWEEP_SECONDS, self)

    def on_timer(self) -> None:
        timeout = self.settings.dial_timeout_seconds
        stalled = self._stalled_links(timeout / 2 if timeout > 0 else UNLIMITED_STALL_SECONDS)
        self._obey(self.board.time_passed(self.loop.now, timeout, stalled, random.getrandbits(30)))
        self._sweeping = self.board.needs_time()
        if self._sweeping:
            self.loop.after(SWEEP_SECONDS, self)

    def _stalled_links(self, seconds: float) -> list[AgentLink]:
        now = self.loop.now
        return [link for link in self.links.values() if cast(AgentShell, link.shell).is_stalled(now, seconds)]

    def on_crash(self, error: Exception) -> None:
        logger.error("internal error in the sweep: %r", error)
        self.loop.after(SWEEP_SECONDS, self)

    def is_ready(self) -> bool:
        return self.board.yard.has_any()

    def open_tunnels(self) -> int:
        return self.board.pending_count() + self.board.established_count()

    def gauges(self) -> ServerGauges:
        return ServerGauges(
            proxy_streams=self.proxy_streams,
            connect_streams=len(self.links),
            http_connections=len(self.clients),
            ready_backends=self.board.yard.ready_backends(),
            pending_dials=self.board.pending_count(),
            established_connections=self.board.established_count(),
        )
