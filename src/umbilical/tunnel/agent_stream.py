"""One agent's Connect stream at the server, as tunnels use it: packets to the agent, and streams of single tunnels."""

from typing import Final

from umbilical.konnectivity.links import AgentLink
from umbilical.tunnel.backlog import SharedCredit
from umbilical.tunnel.transport import Transport
from umbilical.tunnel.tunnel_stream import TunnelStream
from umbilical.wire import packets
from umbilical.wire.http2.streams import Stream, StreamOwner


class AgentStream:
    def __init__(self, transport: Transport, stream: Stream, link: AgentLink) -> None:
        self.transport: Final = transport
        self.stream: Final = stream
        self.link: Final = link
        self.shared_credit: Final = SharedCredit(transport, stream)
        self.peer = ""
        self.program = ""
        """Of the agent, as it calls itself."""
        self.since = 0.0
        self._waiting_on: object | None = None
        """The first thing in the queue when the stream was last checked."""
        self._waiting_since = 0.0

    def send(self, kind: int, message: bytes) -> None:
        transport = self.transport
        if transport.closed:
            return
        if kind == packets.DIAL_REQ and self.link.has_own_streams:
            transport.connection.expect_stream()
        if kind == packets.CLOSE_REQ:
            transport.connection.sender.send_ordered(self.stream, message)
        else:
            transport.connection.sender.send_message(self.stream, message)
        transport.touch()

    def own_stream(self, connection_id: int, client: StreamOwner) -> TunnelStream | None:
        """The stream that the agent opened for this tunnel, given to its client; None where tunnels share one."""
        if not self.link.has_own_streams:
            return None
        connection = self.transport.connection
        stream = connection.streams.by_id[connection_id]
        stream.owner = client
        stream.served = True
        connection.expected_stream_came()
        own = TunnelStream(self.transport, stream)
        own.answer_later()
        return own

    def is_stalled(self, now: float, seconds: float) -> bool:
        """Whether the same bytes have waited for so long. Called from time to time."""
        waiting_on: object | None = None
        if self.stream.backlog:
            waiting_on = self.stream.backlog[0]
        elif self.transport.has_unsent():
            waiting_on = self.transport.progress
        if waiting_on is None or waiting_on != self._waiting_on:
            self._waiting_on = waiting_on
            self._waiting_since = now
            return False
        return now - self._waiting_since >= seconds

    def retire(self, reason: str) -> None:
        """End this stream from our side."""
        self.transport.end_stream(self.stream, reason)
