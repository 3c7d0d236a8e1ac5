"""The agent's rules: dials and connections on one server connection, and the waits between attempts to connect.

Events in, commands out.
"""

from typing import Final

from umbilical.konnectivity.commands import (
    CONNECTED,
    DIALLING,
    FLUSHING,
    GONE,
    AbortEndpoint,
    CancelDial,
    Command,
    EndpointConnection,
    FlushAndClose,
    StartDial,
    ToServer,
)
from umbilical.konnectivity.dial_failure import DIALABLE_NETWORKS, unsupported_network_text
from umbilical.wire import packets
from umbilical.wire.packets import DialRequest

REMEMBERED_STRAYS: Final = 4_096
"""How many unknown connection IDs are remembered, to answer their DATA only once."""


class AgentSession:
    def __init__(self) -> None:
        self.connections: Final[dict[int, EndpointConnection]] = {}
        """By connection ID, dialling ones included."""
        self._dialling: Final[dict[int, EndpointConnection]] = {}
        self.numbers_by_stream = False
        """Each tunnel has its own stream, and its connection ID is the stream ID."""
        self._last_connection_id = 0
        self._answered_strays: Final[dict[int, None]] = {}

    def is_idle(self) -> bool:
        """There is neither a tunnel nor a dial."""
        return not self.connections

    def open_count(self) -> int:
        return len(self.connections) - len(self._dialling)

    def dial_requested(self, request: DialRequest) -> list[Command]:
        self._last_connection_id += 1  # consumed even when the dial fails, as upstream does
        if request.protocol not in DIALABLE_NETWORKS:
            text = unsupported_network_text(request.protocol)
            return [_dial_answer(text, 0, request.dial_id)]
        if request.dial_id in self._dialling:
            return [_dial_answer("dial ID is already in use", 0, request.dial_id)]
        # The stream is opened when the dial has succeeded; until then the ID is negative, which no stream ID is.
        connection_id = -self._last_connection_id if self.numbers_by_stream else self._last_connection_id
        connection = EndpointConnection(request.dial_id, connection_id, request.protocol, request.address)
        self.connections[connection.connection_id] = connection
        self._dialling[connection.dial_id] = connection
        return [StartDial(connection)]

    def stream_opened(self, connection: EndpointConnection, stream_id: int) -> None:
        """Its own stream is open: from now on its ID is the stream's."""
        self.connections.pop(connection.connection_id, None)
        connection.connection_id = stream_id
        self.connections[stream_id] = connection

    def dial_succeeded(self, connection: EndpointConnection) -> list[Command]:
        self._dialling.pop(connection.dial_id, None)
        connection.state = CONNECTED
        return [_dial_answer("", connection.connection_id, connection.dial_id)]

    def dial_failed(self, connection: EndpointConnection, text: str) -> list[Command]:
        self._forget(connection)
        return [_dial_answer(text, 0, connection.dial_id)]

    def dial_cancelled(self, dial_id: int) -> list[Command]:
        """DIAL_CLS: the client has left, so no socket must be opened (fault orphan-dial)."""
        connection = self._dialling.get(dial_id)
        if connection is None:
            return []
        self._forget(connection)
        return [CancelDial(connection)]

    def close_requested(self, connection_id: int) -> list[Command]:
        connection = self.connections.get(connection_id)
        if connection is None:
            return [_close_answer("Unknown connectID", connection_id)]
        if connection.state == DIALLING:
            self._forget(connection)
            return [CancelDial(connection), _close_answer("", connection_id)]
        if connection.state == FLUSHING:
            return []
        connection.state = FLUSHING
        return [FlushAndClose(connection)]

    def endpoint_flushed(self, connection: EndpointConnection) -> list[Command]:
        return self._closed(connection, "")

    def endpoint_ended(self, connection: EndpointConnection, error: str) -> list[Command]:
        """The endpoint closed or failed; what it sent before is already on its way to the server."""
        return self._closed(connection, error)

    def _closed(self, connection: EndpointConnection, error: str) -> list[Command]:
        if connection.state == GONE:
            return []
        self._forget(connection)
        return [_close_answer(error, connection.connection_id)]

    def stream_over(self, connection: EndpointConnection) -> bool:
        """A tunnel has ended by its own stream; False if it was over before."""
        if connection.state == GONE:
            return False
        self._forget(connection)
        return True

    def stray_data(self, connection_id: int) -> list[Command]:
        """DATA for an unknown connection is answered once (fault close-storm)."""
        strays = self._answered_strays
        if connection_id == 0 or connection_id in strays:
            return []
        if len(strays) >= REMEMBERED_STRAYS:
            del strays[next(iter(strays))]
        strays[connection_id] = None
        return [_close_answer("unrecognized connectID", connection_id)]

    def server_lost(self) -> list[Command]:
        commands: list[Command] = []
        for connection in list(self.connections.values()):
            dialling = connection.state == DIALLING
            self._forget(connection)
            commands.append(CancelDial(connection) if dialling else AbortEndpoint(connection))
        return commands

    def _forget(self, connection: EndpointConnection) -> None:
        connection.state = GONE
        self.connections.pop(connection.connection_id, None)
        self._dialling.pop(connection.dial_id, None)


def _dial_answer(error: str, connection_id: int, dial_id: int) -> ToServer:
    return ToServer(packets.DIAL_RSP, packets.encode_dial_response(error, connection_id, dial_id))


def _close_answer(error: str, connection_id: int) -> ToServer:
    return ToServer(packets.CLOSE_RSP, packets.encode_close_response(error, connection_id))


JITTER: Final = 0.1
"""Upstream's: each wait is longer by up to this share."""
SPREAD: Final = 0.5
"""A wait after several failures is shorter by up to this share, but not shorter than the first. Agents that lost a
server at the same time then do not come back in one instant, and none is later than upstream's."""
GROWTH: Final = 1.5
"""Upstream's factor from one failed attempt to the next."""


class SyncSchedule:
    """The waits between attempts. `draw` is a random number in [0, 1)."""

    def __init__(self, interval_seconds: float, cap_seconds: float) -> None:
        self._interval_seconds = interval_seconds
        self._cap_seconds = cap_seconds
        self._next_seconds = interval_seconds

    def after_success(self, draw: float) -> float:
        """A connection was made, or the server that answered is connected already."""
        self._next_seconds = self._interval_seconds
        return self._interval_seconds * (1.0 + JITTER * draw)

    def after_failure(self, draw: float) -> float:
        wait_seconds = self._next_seconds
        self._next_seconds = min(wait_seconds * GROWTH, self._cap_seconds)
        return max(wait_seconds * (1.0 - SPREAD * draw), self._interval_seconds * (1.0 + JITTER * draw))
