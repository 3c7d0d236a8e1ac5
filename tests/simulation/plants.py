"""Faults that the code once had, planted again: the simulation must find each.

Each plant works whether or not the code has its repair: it puts the old way in place of the present one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from hpack import Decoder

from umbilical.konnectivity.commands import CloseTunnel
from umbilical.konnectivity.links import ESTABLISHED
from umbilical.tunnel import agent_transport, server_core, transport
from umbilical.tunnel.loop import Handler, Loop
from umbilical.tunnel.payload import Inlet
from umbilical.wire.http2 import connection as http2
from umbilical.wire.http2.events import ConnectionFailed, DataReceived, SettingsReceived, WindowOpened
from umbilical.wire.http2.headers import HeaderList
from umbilical.wire.packet_data import read_packets


class _IdentityDecoder:
    """S7: remembers blocks by the identity of the newest entry, which another entry may get."""

    def __init__(self) -> None:
        self._decoder: Final = Decoder(max_header_list_size=65_536)
        self._known: Final[dict[bytes, HeaderList]] = {}

    def decode(self, block: bytes) -> HeaderList:
        known = self._known.get(block)
        if known is not None:
            return list(known)
        before = self._state()
        fields = [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        if self._state() != before:
            self._known.clear()
        else:
            self._known[block] = list(fields)
        return fields

    def _state(self) -> tuple[int, int]:
        entries = self._decoder.header_table.dynamic_entries
        return len(entries), id(entries[0]) if entries else 0


@contextmanager
def fields_by_identity() -> Iterator[None]:
    with patch.object(http2, "HeaderDecoder", _IdentityDecoder):
        yield


class _Again(Handler):
    """A handler that no other equals."""

    def __init__(self, handler: Handler) -> None:
        self._handler: Final = handler

    def on_again(self) -> None:
        self._handler.on_again()

    def on_crash(self, error: Exception) -> None:
        self._handler.on_crash(error)


@contextmanager
def repeated_again() -> Iterator[None]:
    """S13: a handler that asks twice is called twice, and no turn has a budget of frames."""
    real = Loop.again

    def again(loop: Loop, handler: Handler) -> None:
        real(loop, _Again(handler))

    with patch.object(Loop, "again", again), patch.object(transport, "FRAMES_PER_TURN", 1 << 30):
        yield


def _dispatch(line: Any) -> None:
    while not line.closed:
        event = line.connection.next_event()
        if event is None:
            return
        if isinstance(event, DataReceived):
            line.on_data(event)
        elif isinstance(event, WindowOpened):
            line.on_window(event.stream)
        elif isinstance(event, SettingsReceived):
            line._unpark_all()
            line.wake_waiting()
        elif isinstance(event, ConnectionFailed):
            line.on_flush()
            line.lose(f"protocol violation: {event.text}")
        else:
            line.on_event(event)


def _on_data(line: Any, event: DataReceived) -> None:
    stream, ended = event.stream, event.end_stream
    if stream.plain:
        if stream.owner is None:
            line._reset_stray(stream)
            return
        if event.end > event.start:
            stream.owner.deliver(event.view[event.start : event.end])
        if ended:
            line._on_tunnel_end(stream)
        return
    incoming = line._agents.get(stream.stream_id)
    if incoming is not None:
        line.connection.frames_left -= read_packets(event, incoming)


def _on_payload(incoming: Any, connection_id: int, view: memoryview) -> None:
    tunnel = incoming._link.connections.get(connection_id)
    if tunnel is None:
        incoming._core.orphan_data(incoming._link, connection_id)
    elif tunnel.state == ESTABLISHED:
        tunnel.client.deliver(view)


def _close(core: Any, command: Any) -> None:
    command.tunnel.client.closed(command.error, command.cause)


@contextmanager
def unguarded_callbacks() -> Iterator[None]:
    """S12: what one tunnel's end raises goes up to the connection of all."""
    real = server_core.ServerCore._obey

    def obey(core: Any, commands: list[Any]) -> None:
        for command in commands:
            if isinstance(command, CloseTunnel):
                _close(core, command)
            else:
                real(core, [command])

    with (
        patch.object(transport.Transport, "_dispatch", _dispatch),
        patch.object(agent_transport.AgentTransport, "on_data", _on_data),
        patch.object(agent_transport.AgentPackets, "on_payload", _on_payload),
        patch.object(server_core.ServerCore, "_obey", obey),
    ):
        yield


@contextmanager
def flush_without_end() -> Iterator[None]:
    """An inlet that found no room asked for a flush, which woke it again: the loop never slept."""
    real = Inlet.write

    def write(inlet: Inlet, view: memoryview) -> int:
        taken = real(inlet, view)
        inlet._transport.touch()
        return taken

    with patch.object(Inlet, "write", write):
        yield
