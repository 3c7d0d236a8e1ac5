"""What all connections of one server share: events go to the tunnel registry, and its commands are carried out.

It has no sockets; transports and clients have.
"""

import logging
import random
from typing import Final, Protocol

from umbilical.konnectivity.caps import Caps
from umbilical.konnectivity.commands import (
    CloseTunnel,
    Command,
    CountDialFailure,
    OpenTunnel,
    RefuseDial,
    ReportHealth,
    ReportRedial,
    RetireAgent,
    ToAgent,
)
from umbilical.konnectivity.dial_failure import DialFailure, FailureReason, failure_code, grpc_error_text
from umbilical.konnectivity.links import ENDED, AgentLink, Tunnel
from umbilical.konnectivity.routing import AgentRouter
from umbilical.konnectivity.tunnel_registry import TunnelRegistry
from umbilical.tunnel import causes, faults, notices
from umbilical.tunnel.agent_stream import AgentStream
from umbilical.tunnel.audit import Audit
from umbilical.tunnel.backlog import STUCK_SECONDS
from umbilical.tunnel.events import EventSource
from umbilical.tunnel.faults import Breakable
from umbilical.tunnel.identities import AgentGate, ClientGate
from umbilical.tunnel.linger import LingeringChannels
from umbilical.tunnel.loop import Deadlines, Handler, Loop
from umbilical.tunnel.metrics import ServerGauges, ServerMetrics
from umbilical.tunnel.notices import ARRIVAL_SECONDS, DialNotices, LogThrottle
from umbilical.tunnel.recent import RecentTroubles
from umbilical.tunnel.round_trips import WindowBudget
from umbilical.tunnel.settings import ServerSettings
from umbilical.tunnel.tls_channel import TlsChannel
from umbilical.tunnel.transport import Transport
from umbilical.wire import packets
from umbilical.wire.packets import DialResponse

logger = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 20.0
"""For a TLS handshake. grpc-go allows 120, which no honest peer needs."""
FIRST_CALL_SECONDS: Final = 10.0
"""From the end of the TLS handshake to the first valid call. Agents and clients call at once; grpc-go sets no limit."""
FLUSH_SECONDS: Final = 60.0
"""How long a client may take to read the last bytes of a tunnel that has ended."""
SWEEP_SECONDS: Final = 0.25
UNLIMITED_STALL_SECONDS: Final = 5.0
"""Where dials have no time limit: they go to another agent after theirs took no packets for so long."""


MOMENT_SECONDS: Final = 0.002
"""Dials of one such moment may share an agent (measured, 200 agents: a sixth less CPU than if those of a turn do)."""
_nothing: Final = Handler()


class FrontendClient(Protocol):
    """A client's connection in http-connect mode."""

    tunnel: Tunnel | None

    def peer_certificate(self) -> bytes | None:
        """In DER; None without one."""

    def on_lost(self, reason: str) -> None:
        """Close it."""

    def on_crash(self, error: Exception) -> None:
        """Another method raised, which is a bug: close it."""


class ServerCore(Handler):
    def __init__(self, loop: Loop, settings: ServerSettings) -> None:
        self.loop: Final = loop
        self.settings: Final = settings
        self.metrics: Final = ServerMetrics()
        limits = settings.caps
        caps = Caps(limits.agents, limits.agent_tunnels, limits.client_tunnels, limits.dial_rate)
        self.registry: Final = TunnelRegistry(AgentRouter(settings.strategies), caps)
        self.events: Final = EventSource(settings.server_id)
        self.recent: Final = RecentTroubles(loop, self.metrics.dial_seconds)
        self.window_budget: Final = WindowBudget.of(settings.limits)
        self.lingering: Final = LingeringChannels(loop)
        self.handshakes: Final = Deadlines(loop, HANDSHAKE_SECONDS)
        self.first_calls: Final = Deadlines(loop, FIRST_CALL_SECONDS)
        self.flushing: Final = Deadlines(loop, FLUSH_SECONDS)
        self.stuck: Final = Deadlines(loop, STUCK_SECONDS)
        self.half_closed: Final = Deadlines(loop, settings.limits.half_closed_idle_seconds)
        self.agents: Final[dict[int, AgentStream]] = {}
        """By the key of their link."""
        self.transports: Final[set[Transport]] = set()
        self.clients: Final[set[FrontendClient]] = set()
        """Of http-connect mode, from their first byte to their last."""
        self.proxy_streams = 0
        self.agent_gate: Final = AgentGate(settings.agent_identities, settings.token_identity)
        self.client_gate: Final = ClientGate(settings.frontend_identities)
        self._last_key = 0
        self._last_dial_id = random.getrandbits(26)
        self._sweeping = False
        self._notices: Final = DialNotices()
        self.audit: Final = Audit(settings.audit, settings.server_id) if settings.audit.path else None
        self.throttle: Final = LogThrottle()
        """For lines that any host on the network can cause."""
        self._arrivals: Final = LogThrottle(ARRIVAL_SECONDS)

    def host_more(self, kind: str, peer: str) -> str | None:
        """The end of a log line about a host that may fail again and again; None: log nothing now."""
        return self.throttle.more(f"{kind} {peer.rpartition(':')[0]}", self.loop.now)

    def refuse_client(self, channel: TlsChannel) -> str:
        """Why this client gets no tunnels; empty if it does. The channel learns the name in its certificate."""
        channel.proved, refusal = self.client_gate.judge(channel.tls)
        peer = channel.peer()
        more = self.host_more("UMB414", peer) if refusal else None
        if more is not None:
            cause = causes.FailureCause("UMB414", refusal)
            logger.warning("%s client refused peer=%s: %s%s", cause.code, peer, refusal, more, extra=cause.fields)
        return refusal

    def client_failed(self, peer: str, reason: str) -> None:
        """A client's connection failed before it asked for a tunnel."""
        more = self.host_more("client", peer)
        if more is not None:
            logger.info("client connection failed peer=%s: %s%s", peer, reason, more)

    def next_key(self) -> int:
        self._last_key += 1
        return self._last_key

    def links(self) -> list[AgentLink]:
        """Those to other workers too."""
        return [agent.link for agent in self.agents.values()]

    def agent_links(self) -> list[AgentLink]:
        return [link for link in self.links() if not link.is_sibling]

    def agent_count(self) -> int:
        """Connected agents, each counted once."""
        return len({link.agent_id for link in self.agent_links()})

    def agent_of(self, tunnel: Tunnel) -> AgentStream:
        """The agent that answered the tunnel's dial."""
        link = tunnel.link
        assert link is not None
        return self.agents[link.key]

    def agent_connected(self, agent: AgentStream, peer: str) -> None:
        link = agent.link
        if link.is_sibling:
            self.agents[link.key] = agent
            self.registry.agent_connected(link)
            return
        more = self._arrivals.more(peer, self.loop.now)
        if more is not None:
            link.announced = True
            logger.info("agent connected agent=%s peer=%s%s", link.agent_id, peer, more)
        self.agents[link.key] = agent
        self.registry.agent_connected(link)
        if self.events.heard:
            self.events.agent_came(link, peer)
        unusable = self.registry.router.unusable_networks(link)
        more = self.throttle.more(f"UMB413 {link.agent_id}", self.loop.now) if unusable else None
        if more is not None:
            notices.report_networks(link, unusable, more)

    def agent_draining(self, link: AgentLink) -> None:
        if link.draining:
            return
        logger.info("agent drains agent=%s", link.agent_id)
        self.registry.agent_draining(link)

    def agent_silent(self, link: AgentLink) -> None:
        self._watch_time()
        self._obey(self.registry.agent_silent(link, self.loop.now, random.getrandbits(30)))

    def agent_gone(self, link: AgentLink, reason: str) -> None:
        del self.agents[link.key]
        self._log_gone(link, reason)
        if self.events.heard:
            self.events.agent_left(link, reason)
        self._obey(self.registry.agent_gone(link, f"agent lost: {reason}", random.getrandbits(30)))

    def _log_gone(self, link: AgentLink, reason: str) -> None:
        if link.is_sibling or (not link.announced and not link.connections):
            return  # one of many Connect streams on its connection, whose arrival was only counted
        if link.draining or causes.is_orderly(reason):
            logger.info("agent gone agent=%s tunnels=%d: %s", link.agent_id, len(link.connections), reason)
            return
        if not link.connections and any(other.agent_id == link.agent_id for other in self.links()):
            # It looked for more servers behind the same address, reached us again, and keeps its first connection.
            logger.info("agent closed a second connection agent=%s: %s", link.agent_id, reason)
            return
        cause = causes.of_gone_agent(reason)
        if not link.slots or len(link.slots[0].links) == 1:  # else it is connected once more
            self.recent.agent_lost(link.agent_id, cause.code, reason, len(self.agents) + 1)
        logger.warning(
            "%s agent gone agent=%s tunnels=%d agents=%d: %s",
            cause.code,
            link.agent_id,
            len(link.connections),
            len(self.agents),
            reason,
            extra=cause.fields,
        )

    def agent_answered(self, link: AgentLink, answer: DialResponse) -> None:
        self._obey(self.registry.agent_answered(link, answer, self.loop.now))

    def agent_closed(self, link: AgentLink, connection_id: int, error: str) -> None:
        self._obey(self.registry.agent_closed(link, connection_id, error))

    def agent_cancelled_dial(self, link: AgentLink, dial_id: int) -> None:
        self._obey(self.registry.agent_cancelled_dial(link, dial_id))

    def orphan_data(self, link: AgentLink, connection_id: int) -> None:
        self._obey(self.registry.orphan_data(link, connection_id))

    def transport_closed(self, transport: Transport) -> None:
        self.handshakes.discard(transport)
        self.first_calls.discard(transport)
        self.transports.discard(transport)

    def dial(self, tunnel: Tunnel, protocol: str) -> None:
        self._watch_time()
        if tunnel.may_relay and self.registry.caps.knows_clients:
            tunnel.owner = tunnel.client.identity() or "unknown"
        moment = int(self.loop.now / MOMENT_SECONDS)
        self._obey(self.registry.dialled(tunnel, protocol, random.getrandbits(30), moment))

    def next_dial_id(self) -> int:
        """For clients that send none. Upstream draws 63 random bits; unique within this server is enough."""
        self._last_dial_id += 1
        return self._last_dial_id

    def client_closed(self, tunnel: Tunnel) -> None:
        """It asked to close, or left; the answer comes by `TunnelClient.closed`."""
        self._watch_time()
        self._obey(self.registry.client_closed(tunnel, self.loop.now))

    def stream_over(self, tunnel: Tunnel) -> None:
        """A tunnel with its own stream is over, which the stream showed to its agent."""
        if tunnel.link is not None:
            self._obey(self.registry.agent_closed(tunnel.link, tunnel.connection_id, ""))

    def stream_lost(self, tunnel: Tunnel, code: int) -> None:
        """The agent reset the tunnel's own stream."""
        self.report_tunnel(tunnel, f"endpoint failed (HTTP/2 error {code} from the agent)")
        self.stream_over(tunnel)

    def pause_sender(self, tunnel: Tunnel) -> bool:
        """Ask the agent to stop reading the endpoint; False if it does not support that."""
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
            try:
                match command:
                    case ToAgent():
                        self._to_agent(command.link, command.kind, command.message)
                    case OpenTunnel():
                        self._open(command.tunnel)
                    case CloseTunnel():
                        self._close(command)
                    case RefuseDial():
                        self._refuse(command.tunnel, command.failure)
                    case CountDialFailure():
                        self.metrics.dial_failed(command.reason)
                    case RetireAgent():
                        self._retire(command.link)
                    case ReportRedial():
                        notices.report_redial(command)
                    case ReportHealth():
                        notices.report_health(command)
                    case _:
                        raise AssertionError(f"{command!r} is not a command for the server")
            except Exception as error:
                self.loop.crash(self._culprit(command), faults.COMMAND, error)

    def _culprit(self, command: Command) -> Breakable:
        """What to close where a command failed: the client, or the connection of the agent that takes no packets."""
        if isinstance(command, OpenTunnel | CloseTunnel | RefuseDial):
            return command.tunnel.client
        agent = self.agents.get(command.link.key) if isinstance(command, ToAgent | RetireAgent) else None
        return _nothing if agent is None else agent.transport

    def _retire(self, link: AgentLink) -> None:
        agent = self.agents.get(link.key)
        if agent is not None:
            agent.retire("agent takes no packets")

    def _open(self, tunnel: Tunnel) -> None:
        if not _is_relayed(tunnel):
            self.metrics.dial_seconds.observe(tunnel.opened_at - tunnel.asked_at)
        if self.events.heard:
            rounds = self.agent_of(tunnel).transport.rounds
            self.events.tunnel_opened(tunnel, 0.0 if rounds is None else rounds.shortest_seconds)
        tunnel.client.opened(tunnel)

    def _refuse(self, tunnel: Tunnel, failure: DialFailure) -> None:
        text = grpc_error_text(failure)
        code = failure_code(failure)
        if failure.reason is FailureReason.NO_AGENT and not self.agent_links():
            code = "UMB301"
        if not tunnel.may_relay:
            tunnel.client.refused(failure)  # the worker that asked for it logs it
            return
        now, agent = self.loop.now, tunnel.link.agent_id if tunnel.link is not None else ""
        self.report_tunnel(tunnel, text, code)
        client, seconds = tunnel.client.identity(), now - tunnel.asked_at
        self.recent.dial_failed(tunnel.address, client, agent, code or failure.reason.value, text, seconds)
        if code:
            self._notices.refused(code, tunnel.address, agent or "-", text, now)
        tunnel.client.refused(failure)

    def _close(self, command: CloseTunnel) -> None:
        tunnel = command.tunnel
        if not _is_relayed(tunnel):
            self.metrics.connection_seconds.observe(self.loop.now - tunnel.opened_at)
        self.report_tunnel(tunnel, command.cause)
        tunnel.client.closed(command.error, command.cause)

    def report_tunnel(self, tunnel: Tunnel, cause: str, code: str = "") -> None:
        """A tunnel, or a dial, is over: once its line in the log, its event, and its record in the audit."""
        if tunnel.reported:
            return
        if self.events.heard:
            self.events.tunnel_over(tunnel, self.loop.now, cause, code)
        if self.audit is not None and tunnel.may_relay:  # else the worker that has its client records it
            self.audit.record(tunnel, self.loop.now, cause, code)
        notices.report_tunnel(tunnel, self.loop.now, cause, code)

    def client_stuck(self, tunnel: Tunnel, text: str) -> None:
        """The tunnel is closed because its client reads nothing."""
        notices.client_stuck(tunnel, text)
        self.report_tunnel(tunnel, text, "UMB403")

    def _to_agent(self, link: AgentLink, kind: int, message: bytes) -> None:
        agent = self.agents.get(link.key)
        if agent is None:
            return  # its connection ended while commands for it were under way
        if kind <= packets.DRAIN:
            self.metrics.to_agent[kind] += 1
        agent.send(kind, message)

    def _watch_time(self) -> None:
        """Start the sweep: something waits for an agent's answer."""
        if not self._sweeping:
            self._sweeping = True
            self.loop.after(SWEEP_SECONDS, self)

    def on_timer(self) -> None:
        timeout = self.settings.dial_timeout_seconds
        stalled = self._stalled_links(timeout / 2 if timeout > 0 else UNLIMITED_STALL_SECONDS)
        self._obey(self.registry.time_passed(self.loop.now, timeout, stalled, random.getrandbits(30)))
        self._sweeping = self.registry.needs_time()
        if self._sweeping:
            self.loop.after(SWEEP_SECONDS, self)

    def _stalled_links(self, seconds: float) -> list[AgentLink]:
        now = self.loop.now
        return [agent.link for agent in self.agents.values() if agent.is_stalled(now, seconds)]

    def on_crash(self, error: Exception) -> None:
        self.loop.after(SWEEP_SECONDS, self)

    def is_ready(self) -> bool:
        return self.registry.router.has_any()

    def open_tunnels(self) -> int:
        return self.registry.pending_count() + self.registry.established_count()

    def gauges(self) -> ServerGauges:
        siblings = [link for link in self.links() if link.is_sibling]
        relayed = sum([len(link.connections) for link in siblings])
        # A relayed tunnel is counted by the worker that has its agent.
        return ServerGauges(
            proxy_streams=self.proxy_streams,
            connect_streams=len(self.agents) - len(siblings),
            http_connections=len(self.clients),
            ready_backends=self.registry.router.ready_backends(),
            pending_dials=self.registry.pending_count() - sum([len(link.pending) for link in siblings]),
            established_connections=self.registry.established_count() - relayed,
            faults=self.loop.faults.counts,
            window_granted_bytes=self.window_budget.granted_bytes,
            window_budget_bytes=self.window_budget.total_bytes,
            refused_by_caps=self.registry.caps.refused,
            lost_audit_records=None if self.audit is None else self.audit.lost.total,
        )


def _is_relayed(tunnel: Tunnel) -> bool:
    """Another worker has the agent, and counts the tunnel."""
    return tunnel.link is not None and tunnel.link.is_sibling
