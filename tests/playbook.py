"""Tests of the rules read like a transcript: an event happens, and `said` tells in words what the rules order."""

from collections.abc import Sequence

from umbilical.konnectivity import commands as orders
from umbilical.konnectivity.commands import Command, EndpointConnection
from umbilical.konnectivity.dial_failure import grpc_error_text
from umbilical.konnectivity.links import Tunnel
from umbilical.wire import packets
from umbilical.wire.packets import decode_packet


def said(commands: Sequence[Command]) -> list[str]:
    """Return one line per command, in order."""
    return [_line(command) for command in commands]


def _line(command: Command) -> str:
    if isinstance(command, orders.ToAgent):
        return f"{command.link.agent_id} <- {packet_words(command.kind, command.message)}"
    if isinstance(command, orders.ToServer):
        return f"server <- {packet_words(command.kind, command.message)}"
    if isinstance(command, orders.RefuseDial):
        return f"refuse dial {command.tunnel.dial_id}: {grpc_error_text(command.failure)}"
    if isinstance(command, orders.OpenTunnel):
        return f"open dial {command.tunnel.dial_id} as connection {command.tunnel.connection_id}"
    if isinstance(command, orders.CloseTunnel):
        return f"close {_tunnel(command.tunnel)}, error {command.error!r}: {command.cause}"
    if isinstance(command, orders.CountDialFailure):
        return f"count {command.reason}"
    if isinstance(command, orders.ReportRedial):
        return f"tell: dial {command.tunnel.dial_id} leaves {command.left.agent_id}: {command.cause}"
    if isinstance(command, orders.ReportHealth):
        return f"tell: {command.link.agent_id} is {'sick' if command.link.sick else 'well'}: {command.cause}"
    if isinstance(command, orders.RetireAgent):
        return f"retire {command.link.agent_id}"
    return _endpoint_line(command)


def _endpoint_line(command: Command) -> str:
    if isinstance(command, orders.StartDial):
        return f"dial {_endpoint(command.connection)} {command.connection.network} {command.connection.address}"
    if isinstance(command, orders.CancelDial):
        return f"cancel {_endpoint(command.connection)}"
    if isinstance(command, orders.FlushAndClose):
        return f"flush and close {_endpoint(command.connection)}"
    if isinstance(command, orders.AbortEndpoint):
        return f"abort {_endpoint(command.connection)}"
    raise AssertionError(f"no words for {command!r}")


def _tunnel(tunnel: Tunnel) -> str:
    return f"connection {tunnel.connection_id}"


def _endpoint(connection: EndpointConnection) -> str:
    return f"connection {connection.connection_id}"


def packet_words(kind: int, message: bytes) -> str:
    """The packet by its type and what matters in it; its bytes must be of the kind that the command names."""
    packet = decode_packet(message, 0, len(message))
    assert packet.kind == kind, f"the command says type {kind}, its message is of type {packet.kind}"
    if isinstance(packet, packets.DialRequest):
        return f"DIAL_REQ {packet.protocol} {packet.address} dial={packet.dial_id}"
    if isinstance(packet, packets.DialResponse):
        return f"DIAL_RSP dial={packet.dial_id} connection={packet.connection_id} error={packet.error!r}"
    if isinstance(packet, packets.CloseRequest):
        return f"CLOSE_REQ connection={packet.connection_id}"
    if isinstance(packet, packets.CloseResponse):
        return f"CLOSE_RSP connection={packet.connection_id} error={packet.error!r}"
    if isinstance(packet, packets.CloseDial):
        return f"DIAL_CLS dial={packet.dial_id}"
    raise AssertionError(f"no words for a packet of type {kind}")
