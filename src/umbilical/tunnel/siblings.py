"""Tunnels between the workers of one server: one that has no agent for a destination relays to one that has.

Two workers share two private sockets. On each, one of them is the server. The other speaks as an agent, in the same
protocol, and makes each dial through its own agents:

    client - worker A - sibling's socket - worker B: SiblingLink, Endpoint = socketpair = RelayedClient - agent

A relayed dial is never relayed again.
"""

import socket
from typing import Final

from umbilical.konnectivity import metadata
from umbilical.konnectivity.dial_failure import DialFailure, grpc_error_text
from umbilical.konnectivity.links import Tunnel
from umbilical.tunnel.agent_transport import Admission, AgentTransport
from umbilical.tunnel.channel import Channel
from umbilical.tunnel.connect_frontend import DIALLING, ConnectClient
from umbilical.tunnel.dialing import Dial, DialOwner, EndpointDialer
from umbilical.tunnel.endpoint import EndpointContext
from umbilical.tunnel.loop import Deadlines
from umbilical.tunnel.metrics import AgentMetrics
from umbilical.tunnel.server_core import ServerCore
from umbilical.tunnel.server_link import LinkKeeper, ServerLink

MOST_DIALS: Final = 1 << 30
"""Not limited here: the agents that get the dials have limits."""


class _NoResolver:
    def resolve(self, dial: Dial, host: str, port: int) -> None:
        raise AssertionError("a relayed dial looks nothing up")


class RelayedClient(ConnectClient):
    """The client's end of a tunnel that another worker asked for; its far end is an `Endpoint` of this process."""

    def __init__(self, channel: Channel, core: ServerCore, heads: Deadlines, dial: "RelayDial") -> None:
        super().__init__(channel, core, heads)
        self._asking: Final = dial
        self._head = None
        self._phase = DIALLING

    def ask(self, address: str, protocol: str) -> None:
        self._channel.start(self)
        tunnel = self.tunnel = Tunnel(self, self._core.next_dial_id(), address, self._loop.now)
        tunnel.may_relay = False
        self._core.dial(tunnel, protocol)

    def _announce(self, tunnel: Tunnel) -> bool:
        self._asking.opened()
        return True

    def refused(self, failure: DialFailure) -> None:
        self._finish()
        self._asking.refused(grpc_error_text(failure))


class RelayDial(Dial):
    """A dial for another worker: it succeeds when an agent of this one has answered."""

    def __init__(self, dialer: "RelayDialer", owner: DialOwner, network: str, address: str) -> None:
        super().__init__(dialer, owner, network, address)
        self._relay: Final = dialer
        self._near: socket.socket | None = None

    def start(self) -> None:
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        self._near = near
        client = RelayedClient(Channel(self.loop, far), self._relay.core, self._relay.heads, self)
        client.ask(self._address, self.network)

    def opened(self) -> None:
        near = self._near
        if near is not None:
            self._near = None
            self._over = True
            self.loop.add(near.fileno(), self, writable=True)
            self._owner.dial_succeeded(near, 0)

    def refused(self, text: str) -> None:
        if not self._over:
            self.cancel()
            self._owner.dial_failed(text)

    def cancel(self) -> None:
        """The client at the other end of the socketpair sees that it is alone, and cancels its dial."""
        self._over = True
        if self._near is not None:
            self._near.close()
            self._near = None

    def on_crash(self, error: Exception) -> None:
        self.refused(f"internal error: {error!r}")


class RelayDialer(EndpointDialer):
    """Dials through this worker's own agents. Time limits are the asking worker's, and those of the core."""

    def __init__(self, core: ServerCore) -> None:
        super().__init__(core.loop, _NoResolver(), 1.0, MOST_DIALS)
        self.core: Final = core
        self.heads: Final = Deadlines(core.loop, 1.0)

    def dial(self, owner: DialOwner, network: str, address: str) -> Dial:
        dial = RelayDial(self, owner, network, address)
        self._start(dial)
        return dial

    def finished(self, dial: Dial) -> None:
        self._active.discard(dial)


class SiblingLink(ServerLink):
    """The agent's role towards another worker."""

    def __init__(self, sock: socket.socket, core: ServerCore, context: EndpointContext) -> None:
        own_streams = core.settings.limits.own_streams
        hello = metadata.agent_hello_headers(core.settings.server_id, "", None, streams=own_streams)
        super().__init__(Channel(core.loop, sock), hello, "worker", LinkKeeper(), context)
        self.is_sibling = True
        self._core: Final = core
        core.transports.add(self)

    def on_closed(self, reason: str) -> None:
        self._core.transports.discard(self)
        super().on_closed(reason)


class Siblings:
    """The other workers of this server, as this one meets them."""

    def __init__(self, core: ServerCore) -> None:
        self._core: Final = core
        self._admission: Final = Admission()
        limits, dialer = core.settings.limits, RelayDialer(core)
        self._context: Final = EndpointContext(core.loop, dialer, limits, AgentMetrics(), core.window_budget)

    def serve(self, sock: socket.socket) -> None:
        """The other worker takes dials that this one has no agent for."""
        transport = AgentTransport(Channel(self._core.loop, sock), self._core, self._admission)
        self._core.transports.add(transport)
        transport.start()
        transport.on_open()

    def attend(self, sock: socket.socket) -> None:
        """The other worker may ask this one to dial."""
        link = SiblingLink(sock, self._core, self._context)
        link.start()
        link.on_open()
