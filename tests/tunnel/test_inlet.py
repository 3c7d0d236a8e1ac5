"""The way of payload into frames, from a socket and from memory."""

from tests.support.data_plane import patterned, turn_until
from tests.support.socket_pairs import reset, tcp_pair, unix_pair
from tests.support.transports import REQUEST, Line, connection, is_greeted, joined
from tests.support.tunnel_ends import Mouth

from umbilical.tunnel.channel import END, LOST
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.transport import QUANTUM_BYTES
from umbilical.wire import grpc
from umbilical.wire.http2 import connection as http2
from umbilical.wire.http2.connection import Profile
from umbilical.wire.packet_data import find_data
from umbilical.wire.packets import DATA

CONNECTION_ID = 300


def opened(plane: Loop, window: int = 1_000_000) -> tuple[Line, Line]:
    """A line with one stream, as wide as asked."""
    client, server = joined(plane, connection(True), connection(False, Profile(stream_window_bytes=window)))
    turn_until(plane, lambda: is_greeted(client, server))
    client.connection.open_stream(REQUEST)
    client.touch()
    turn_until(plane, lambda: http2.HEADERS in server.events)
    return client, server


def payload_of(server: Line) -> bytes:
    """What the DATA packets that arrived carry, put together."""
    (raw,) = server.received.values()
    reader = grpc.MessageReader()
    reader.feed(raw, memoryview(raw), 0, len(raw))
    payload = bytearray()
    while reader.next_message():
        connection_id, start = find_data(reader.source, reader.start, reader.end)
        assert connection_id == CONNECTION_ID
        payload += reader.view[start : reader.end]
    return bytes(payload)


def test_what_a_socket_brings_arrives_whole_and_is_counted(plane: Loop) -> None:
    client, server = opened(plane)
    ours, peer = unix_pair()
    mouth = Mouth(plane, client, ours, CONNECTION_ID)
    expected = patterned(100_000)
    peer.sendall(expected)
    peer.close()
    turn_until(plane, lambda: mouth.ends == [END] and not client.has_unsent())
    turn_until(plane, lambda: payload_of(server) == expected)
    assert mouth.inlet.bytes_written == len(expected)
    assert mouth.counts[DATA] == sum(mouth.counts) > 0


def test_one_turn_takes_a_quantum_and_the_rest_in_the_next(plane: Loop) -> None:
    client, _ = opened(plane)
    ours, peer = unix_pair()
    peer.sendall(bytes(QUANTUM_BYTES + 1))
    mouth = Mouth(plane, client, ours, CONNECTION_ID)
    turn_until(plane, lambda: mouth.inlet.bytes_written > 0)
    assert mouth.inlet.bytes_written <= QUANTUM_BYTES + 16_384
    turn_until(plane, lambda: mouth.inlet.bytes_written == QUANTUM_BYTES + 1)


def test_without_a_window_the_owner_stands_in_line_once_and_goes_on_with_the_credit(plane: Loop) -> None:
    client, server = opened(plane, window=20_000)
    ours, peer = unix_pair()
    expected = patterned(120_000)
    server.gives_credit = False
    mouth = Mouth(plane, client, ours, CONNECTION_ID)
    peer.sendall(expected)
    turn_until(plane, lambda: mouth.inlet.in_line)
    assert list(client._waiting) == [mouth]
    assert mouth.inlet.write(memoryview(b"more")) == 0
    assert list(client._waiting) == [mouth]
    (stream,) = server.connection.streams.values()
    server.gives_credit = True
    server.connection.credit(stream, server.size_of(stream))
    server.touch()
    turn_until(plane, lambda: mouth.inlet.bytes_written == len(expected))
    assert mouth.rooms > 0


def test_payload_from_memory_is_taken_as_far_as_the_window_reaches(plane: Loop) -> None:
    client, server = opened(plane, window=20_000)
    server.gives_credit = False
    ours, _peer = unix_pair()
    mouth = Mouth(plane, client, ours, CONNECTION_ID)
    expected = patterned(50_000)
    taken = mouth.inlet.write(memoryview(expected))
    assert 0 < taken < 20_000
    assert mouth.inlet.in_line
    assert mouth.inlet.bytes_written == taken
    turn_until(plane, lambda: payload_of(server) == expected[:taken] if server.received else False)


def test_a_socket_that_breaks_is_lost_and_not_ended(plane: Loop) -> None:
    client, _ = opened(plane)
    ours, peer = tcp_pair()
    mouth = Mouth(plane, client, ours, CONNECTION_ID)
    reset(peer)
    turn_until(plane, lambda: bool(mouth.ends))
    assert mouth.ends == [LOST]
