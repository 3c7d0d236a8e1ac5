"""The server: its listeners, its clients and agents, the closing of idle tunnels, and an orderly stop."""

import asyncio
import logging
import socket
from typing import Final

from umbilical.konnectivity import metadata
from umbilical.konnectivity.links import ESTABLISHED, AgentLink, Tunnel
from umbilical.tunnel import certificates, faults
from umbilical.tunnel.agent_transport import Admission, AgentTransport
from umbilical.tunnel.channel import Channel
from umbilical.tunnel.connect_frontend import HEAD_SECONDS, ConnectClient
from umbilical.tunnel.descriptors import FileWatch
from umbilical.tunnel.grpc_frontend import ASKING_SECONDS, GrpcTransport
from umbilical.tunnel.interfaces import AgentAuthenticator, AuthenticationRefused
from umbilical.tunnel.listening import PassedListener, SocketListener
from umbilical.tunnel.loop import Deadlines, Handler, Loop
from umbilical.tunnel.outbound import tune
from umbilical.tunnel.ports import ServerPorts
from umbilical.tunnel.revocation import REVOKED, Revoked
from umbilical.tunnel.server_core import ServerCore
from umbilical.tunnel.settings import FrontendMode, ServerSettings
from umbilical.tunnel.siblings import Siblings
from umbilical.tunnel.tls_channel import TlsChannel
from umbilical.tunnel.transport import Transport
from umbilical.tunnel.unadmitted import AgentRule, ClientRule, UnadmittedPeers
from umbilical.wire.http2 import frames
from umbilical.wire.http2.streams import Stream

logger = logging.getLogger(__name__)

LOOKS: Final = 4
"""Checks within the time limit: a tunnel is closed at most a quarter of it late."""


class IdleReaper(Handler):
    """Closes tunnels that have moved nothing for long: some clients forget theirs (fault forgotten-tunnels).

    It compares byte counts from time to time, so that a tunnel needs no timer.
    """

    def __init__(self, core: ServerCore, seconds: float) -> None:
        self._core: Final = core
        self._loop: Final = core.loop
        self._seconds: Final = seconds
        self._timer = self._loop.after(seconds / LOOKS, self)

    def stop(self) -> None:
        self._loop.cancel(self._timer)

    def on_timer(self) -> None:
        try:
            for link in self._core.links():
                for tunnel in list(link.connections.values()):
                    try:
                        self._check(tunnel)
                    except Exception as error:
                        self._loop.crash(tunnel.client, faults.TIMER, error)
        finally:
            self._timer = self._loop.after(self._seconds / LOOKS, self)

    def _check(self, tunnel: Tunnel) -> None:
        moved = sum(tunnel.client.byte_counts())
        if moved != tunnel.moved_bytes or tunnel.idle_since == 0.0:
            tunnel.moved_bytes = moved
            tunnel.idle_since = self._loop.now
        elif self._loop.now - tunnel.idle_since >= self._seconds and tunnel.state == ESTABLISHED:
            tunnel.client.end_idle(f"idle for {self._seconds:g} s")


class TokenAdmission(Admission):
    """Authenticates an agent before it is admitted; owns the reviews under way."""

    def __init__(self, authenticator: AgentAuthenticator) -> None:
        self._authenticator: Final = authenticator
        self._questions: Final[set[asyncio.Task[None]]] = set()

    def ask(self, transport: AgentTransport, stream: Stream, hello: metadata.AgentHello) -> None:
        question = asyncio.get_running_loop().create_task(self._question(transport, stream, hello))
        self._questions.add(question)
        question.add_done_callback(self._questions.discard)

    async def _question(self, transport: AgentTransport, stream: Stream, hello: metadata.AgentHello) -> None:
        try:
            await self._authenticator.authenticate(metadata.bearer_token(hello.authorization_values))
        except (metadata.MetadataRefused, AuthenticationRefused) as refused:
            transport.refuse(stream, str(refused))
        except Exception as error:
            # A bug or a broken API: the agent must get an answer all the same.
            transport.loop.faults.note(faults.TASK, error, transport.loop.now)
            transport.refuse(stream, "Failed to validate authentication token, err:internal error")
        else:
            self._admit(transport, stream, hello)

    def _admit(self, transport: AgentTransport, stream: Stream, hello: metadata.AgentHello) -> None:
        try:
            transport.admitted(stream, hello)
        except Exception as error:
            transport.loop.crash(transport, faults.TASK, error)

    def close(self) -> None:
        for question in self._questions:
            question.cancel()


class Server:
    def __init__(self, settings: ServerSettings, loop: Loop, authenticator: AgentAuthenticator | None) -> None:
        self.settings: Final = settings
        self._loop: Final = loop
        self._admission: Final = TokenAdmission(authenticator) if authenticator is not None else Admission()
        self.core: Final = ServerCore(loop, settings)
        self.stopping = False
        self._heads: Final = Deadlines(loop, HEAD_SECONDS)
        metrics = self.core.metrics.certificates
        self._agent_certificates: Final = certificates.agent_listener(settings, loop, metrics)
        grpc_mode = settings.mode == FrontendMode.GRPC
        alpn = "h2" if grpc_mode else "http/1.1"
        self._frontend_certificates: Final = certificates.frontend(settings, alpn, loop, metrics)
        idle = settings.idle_tunnel_seconds
        self._reaper: Final = IdleReaper(self.core, idle) if idle > 0 else None
        self._accept_client: Final = self._accept_grpc if grpc_mode else self._accept_connect
        self._files: Final = FileWatch(loop)
        self._strangers: Final = UnadmittedPeers(loop, "connections to the port for agents")
        self._callers: Final = UnadmittedPeers(loop, "connections of clients")
        """Clients over TLS."""
        self._frontend: SocketListener | None = None
        self._agents: SocketListener | None = None
        self._ports: ServerPorts | None = None

    def listen(self, passed: socket.socket | None = None) -> None:
        """Open both listeners, or none; `passed` is the one for clients if it is open. Raises StartupError."""
        ports = self._ports = ServerPorts(self.settings, passed)
        agents = SocketListener(self._loop, ports.agents, self._accept_agent, self._agent_rule())
        clients = SocketListener(self._loop, ports.clients, self._accept_client, self._client_rule())
        self._start_serving(agents, clients)

    def take_passed(self, agents: socket.socket, clients: socket.socket) -> None:
        """Serve the connections that another process passes over these two sockets."""
        for sock in (agents, clients):
            sock.setblocking(False)
        siblings = Siblings(self.core)
        passed = PassedListener(self._loop, clients, self._accept_client, self._client_rule())
        passed.serve, passed.attend = siblings.serve, siblings.attend
        self._start_serving(PassedListener(self._loop, agents, self._accept_agent, self._agent_rule()), passed)

    def _agent_rule(self) -> AgentRule:
        return AgentRule(self._files, self._strangers)

    def _client_rule(self) -> ClientRule:
        return ClientRule(self._files, None if self._frontend_certificates is None else self._callers)

    def _start_serving(self, agents: SocketListener, clients: SocketListener) -> None:
        self._agents = agents
        self._frontend = clients
        self._agent_certificates.on_revoked = self._cut_agents
        self.core.recent.start()
        self._agent_certificates.start()
        if self._frontend_certificates is not None:
            self._frontend_certificates.on_revoked = self._cut_clients
            self._frontend_certificates.start()

    def agent_port(self) -> int:
        assert self._agents is not None
        return self._agents.port()

    def frontend_port(self) -> int:
        assert self._frontend is not None
        return self._frontend.port()

    def _accept_agent(self, sock: socket.socket) -> None:
        tune(sock)
        channel = TlsChannel(self._loop, sock, self._agent_certificates.context(), None)
        self._strangers.add(channel)
        transport = AgentTransport(channel, self.core, self._admission)
        self.core.transports.add(transport)
        self.core.handshakes.add(transport)
        self._start(transport)

    def _accept_connect(self, sock: socket.socket) -> None:
        self._start(ConnectClient(self._client_channel(sock), self.core, self._heads))

    def _accept_grpc(self, sock: socket.socket) -> None:
        self._start(GrpcTransport(self._client_channel(sock), self.core))

    def _start(self, accepted: Transport | ConnectClient) -> None:
        """Serve what has arrived already; an error there must not stop the listener."""
        try:
            accepted.start()
        except Exception as error:
            self._loop.crash(accepted, faults.EVENT, error)

    def _client_channel(self, sock: socket.socket) -> Channel:
        watched = self._frontend_certificates
        if watched is None:
            plain = Channel(self._loop, sock)
            plain.note_credentials()
            return plain
        channel = TlsChannel(self._loop, sock, watched.context(), None)
        self._callers.add(channel)
        return channel

    def reload(self) -> None:
        """Look at the certificate files now, for new handshakes."""
        for watched in (self._agent_certificates, self._frontend_certificates):
            if watched is not None:
                watched.look()

    def _cut_agents(self, revoked: Revoked) -> None:
        for transport in list(self.core.transports):
            if isinstance(transport, AgentTransport) and _covers(revoked, transport.channel.peer_certificate()):
                transport.lose(REVOKED)

    def _cut_clients(self, revoked: Revoked) -> None:
        for transport in self._grpc_clients():
            if _covers(revoked, transport.channel.peer_certificate()):
                transport.lose(REVOKED)
        for client in list(self.core.clients):
            if _covers(revoked, client.peer_certificate()):
                client.on_lost(REVOKED)

    def watched_certificates(self) -> list[certificates.WatchedContext]:
        """Those of the ports for agents and for clients."""
        frontend = self._frontend_certificates
        return [self._agent_certificates] if frontend is None else [self._agent_certificates, frontend]

    def is_ready(self) -> bool:
        return not self.stopping and self.core.is_ready()

    def agent_links(self) -> list[AgentLink]:
        return self.core.agent_links()

    def agent_count(self) -> int:
        return self.core.agent_count()

    def render_metrics(self, state: str = "") -> bytes:
        return self.core.metrics.render(self.core.gauges(), state)

    def stop_accepting(self) -> None:
        """Accept no new client and no new agent; the others go on."""
        self.stopping = True
        if self._frontend is not None:
            if self._ports is not None:
                self._ports.remove_socket_file()
            self._frontend.accept_rest()
            self._frontend.close()
        if self._agents is not None:
            self._agents.close()

    def announce_leave(self) -> None:
        """Send clients and our own agents to other servers; tunnels go on until they have ended (fault hasty-drain).

        Upstream's agents drop every tunnel at a GOAWAY, so they get it at the very end.
        """
        for transport in self._grpc_clients():
            transport.leave()
        for agent in self.core.agents.values():
            if agent.link.understands_pause and not agent.link.is_sibling:
                agent.transport.connection.sender.goaway(frames.NO_ERROR, "server is leaving")
                agent.transport.touch()

    def _grpc_clients(self) -> list[GrpcTransport]:
        return [transport for transport in self.core.transports if isinstance(transport, GrpcTransport)]

    async def until_idle(self, seconds: float) -> bool:
        """Wait for tunnels to end; False when some are left at the deadline."""
        clock = asyncio.get_running_loop()
        deadline = clock.time() + seconds
        asking_until = min(clock.time() + ASKING_SECONDS, deadline)
        while self._serves_anybody() or (clock.time() < asking_until and self._may_be_asked()):
            if clock.time() >= deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    def _serves_anybody(self) -> bool:
        """A client counts until its last byte, unless it never dialled."""
        core = self.core
        if core.open_tunnels() or core.proxy_streams:
            return True
        return any(client.tunnel is not None for client in core.clients)

    def _may_be_asked(self) -> bool:
        """Clients are left that have not dialled yet."""
        return bool(self.core.clients) or any(client.may_still_ask() for client in self._grpc_clients())

    def close(self) -> None:
        """Send GOAWAY and close everything; agents first, so that clients learn how their tunnels ended."""
        self.stop_accepting()
        self.core.recent.stop()
        self._agent_certificates.stop()
        if self._frontend_certificates is not None:
            self._frontend_certificates.stop()
        transports = list(self.core.transports)
        transports.sort(key=lambda transport: not isinstance(transport, AgentTransport))
        for transport in transports:
            try:
                transport.connection.sender.last_goaway("server is leaving")
                transport.on_flush()
                transport.lose("server is leaving")
            except Exception as error:
                self._loop.crash(transport, faults.CLOSE, error)
        for client in list(self.core.clients):
            try:
                client.on_lost("server is leaving")
            except Exception as error:
                self._loop.crash(client, faults.CLOSE, error)
        if self._reaper is not None:
            self._reaper.stop()
        if self.core.audit is not None:
            self.core.audit.close()
        if isinstance(self._admission, TokenAdmission):
            self._admission.close()


def _covers(revoked: Revoked, certificate: bytes | None) -> bool:
    return certificate is not None and revoked.covers(certificate)
