"""The server's rules: pending dials, tunnels, and who may close what. Events in, commands out.

Tables hang on the agent's link, not on its ID: two streams of one agent number their connections alike (fault C4).
"""

from typing import Final

from umbilical.konnectivity.commands import (
    CLOSING,
    ENDED,
    ESTABLISHED,
    PENDING,
    CloseTunnel,
    Command,
    CountDialFailure,
    OpenTunnel,
    RefuseDial,
    RetireAgent,
    ToAgent,
    Tunnel,
)
from umbilical.konnectivity.dial_failure import DialFailure, FailureReason, metric_reason
from umbilical.konnectivity.routing import AgentLink, Switchyard
from umbilical.wire import packets
from umbilical.wire.packets import DialResponse

REMEMBERED_ORPHANS: Final = 4_096
"""Connection IDs per agent whose orphan DATA was answered already; a late packet of an older one is answered again."""
CLOSE_ANSWER_SECONDS: Final = 60.0
"""How long an agent may take to flush and answer a CLOSE_REQ before we forget the tunnel."""
LONGEST_ADDRESS: Final = 1_024
"""Characters. A DNS name has at most 253; what is longer is no address."""


class Switchboard:
    def __init__(self, yard: Switchyard) -> None:
        self.yard: Final = yard
        self._pending: Final[dict[int, Tunnel]] = {}
        """By serial, so oldest first: all dials have the same time limit."""
        self._closing: Final[dict[int, Tunnel]] = {}
        self._established = 0
        self._serial = 0

    def pending_count(self) -> int:
        return len(self._pending)

    def established_count(self) -> int:
        return self._established

    def closing_count(self) -> int:
        return len(self._closing)

    # ------------------------------------------------------------------ agents come and go

    def agent_connected(self, link: AgentLink) -> None:
        self.yard.add(link)

    def agent_draining(self, link: AgentLink) -> None:
        link.draining = True

    def agent_gone(self, link: AgentLink, cause: str) -> list[Command]:
        """Everything that went through this stream ends now; nobody waits for a timeout (faults C7, 126)."""
        self.yard.remove(link)
        commands: list[Command] = []
        for tunnel in list(link.pending.values()):
            commands += self._refuse(tunnel, DialFailure(FailureReason.AGENT_LOST))
        for tunnel in list(link.connections.values()):
            self._end(tunnel)
            commands.append(CloseTunnel(tunnel, "", cause))
        link.connections.clear()
        return commands

    # ------------------------------------------------------------------ a client dials

    def dialled(self, tunnel: Tunnel, protocol: str, draw: int) -> list[Command]:
        """A client wants `tunnel.address`; `draw` is a random non-negative integer."""
        if len(tunnel.address) > LONGEST_ADDRESS or len(protocol) > LONGEST_ADDRESS:
            return self._refuse_at_once(tunnel, DialFailure(FailureReason.AGENT_ERROR, "dial address is too long"))
        link = self.yard.choose(tunnel.address, draw)
        if link is None:
            return self._refuse_at_once(tunnel, DialFailure(FailureReason.NO_AGENT))
        if tunnel.dial_id in link.pending:
            return self._refuse_at_once(tunnel, DialFailure(FailureReason.AGENT_ERROR, "dial ID is already in use"))
        self._serial += 1
        tunnel.serial = self._serial
        tunnel.link = link
        link.pending[tunnel.dial_id] = tunnel
        self._pending[tunnel.serial] = tunnel
        message = packets.encode_dial_request(protocol, tunnel.address, tunnel.dial_id)
        return [ToAgent(link, packets.DIAL_REQ, message)]

    def _refuse_at_once(self, tunnel: Tunnel, failure: DialFailure) -> list[Command]:
        tunnel.state = ENDED
        return [CountDialFailure(metric_reason(failure)), RefuseDial(tunnel, failure)]

    def agent_answered(self, link: AgentLink, answer: DialResponse, now: float) -> list[Command]:
        tunnel = link.pending.get(answer.dial_id)
        if tunnel is None:
            return self._orphan_answer(link, answer.connection_id)
        if answer.error:
            return self._refuse(tunnel, DialFailure(FailureReason.AGENT_ERROR, answer.error))
        if answer.connection_id == 0 or answer.connection_id in link.connections:
            text = f"agent answered with connection ID {answer.connection_id}, which is not free"
            return self._refuse(tunnel, DialFailure(FailureReason.AGENT_ERROR, text))
        self._forget_pending(tunnel)
        tunnel.connection_id = answer.connection_id
        tunnel.opened_at = now
        tunnel.state = ESTABLISHED
        link.connections[answer.connection_id] = tunnel
        self._established += 1
        return [OpenTunnel(tunnel)]

    def _orphan_answer(self, link: AgentLink, connection_id: int) -> list[Command]:
        """The dial was cancelled or has timed out: the agent now holds a socket that nobody will ever read."""
        commands: list[Command] = [CountDialFailure(metric_reason(DialFailure(FailureReason.UNRECOGNIZED)))]
        if connection_id:
            commands += self.orphan_data(link, connection_id)
        return commands

    def _refuse(self, tunnel: Tunnel, failure: DialFailure) -> list[Command]:
        self._forget_pending(tunnel)
        tunnel.state = ENDED
        return [CountDialFailure(metric_reason(failure)), RefuseDial(tunnel, failure)]

    def _forget_pending(self, tunnel: Tunnel) -> None:
        self._pending.pop(tunnel.serial, None)
        link = tunnel.link
        if link is not None:
            link.pending.pop(tunnel.dial_id, None)

    # ------------------------------------------------------------------ tunnels end

    def client_closed(self, tunnel: Tunnel) -> list[Command]:
        """The client asked to close, cancelled its dial, or went away; what it wrote before is on its way."""
        link = tunnel.link
        if link is None or tunnel.state in (CLOSING, ENDED):
            return []
        if tunnel.state == PENDING:
            self._forget_pending(tunnel)
            tunnel.state = ENDED
            reason = metric_reason(DialFailure(FailureReason.CANCELLED))
            cancel = ToAgent(link, packets.DIAL_CLS, packets.encode_close_dial(tunnel.dial_id))
            return [CountDialFailure(reason), cancel]
        tunnel.state = CLOSING
        self._closing[tunnel.serial] = tunnel
        return [ToAgent(link, packets.CLOSE_REQ, packets.encode_close_request(tunnel.connection_id))]

    def agent_closed(self, link: AgentLink, connection_id: int, error: str) -> list[Command]:
        """CLOSE_RSP: the endpoint ended, or a close that we asked for is done."""
        tunnel = link.connections.pop(connection_id, None)
        if tunnel is None:
            return []
        cause = "client closed" if tunnel.state == CLOSING else "endpoint closed"
        self._end(tunnel)
        return [CloseTunnel(tunnel, error, cause)]

    def agent_cancelled_dial(self, link: AgentLink, dial_id: int) -> list[Command]:
        tunnel = link.pending.get(dial_id)
        if tunnel is None:
            return []
        return self._refuse(tunnel, DialFailure(FailureReason.AGENT_ERROR, "dial closed"))

    def _end(self, tunnel: Tunnel) -> None:
        if tunnel.state in (ESTABLISHED, CLOSING):
            self._established -= 1
            self._closing.pop(tunnel.serial, None)
        tunnel.state = ENDED

    def orphan_data(self, link: AgentLink, connection_id: int) -> list[Command]:
        """DATA of a connection that nobody owns: ask once to close it, not once per packet (fault P7)."""
        orphans = link.answered_orphans
        if connection_id == 0 or connection_id in orphans:
            return []
        if len(orphans) >= REMEMBERED_ORPHANS:
            del orphans[next(iter(orphans))]
        orphans[connection_id] = None
        return [ToAgent(link, packets.CLOSE_REQ, packets.encode_close_request(connection_id))]

    # ------------------------------------------------------------------ time

    def time_passed(self, now: float, dial_timeout: float, stalled: set[int]) -> list[Command]:
        """Refuse dials that waited too long; `stalled` names the links (by key) whose stream takes nothing."""
        commands: list[Command] = []
        if dial_timeout > 0:
            for tunnel in list(self._pending.values()):
                if now - tunnel.asked_at < dial_timeout:
                    break
                commands += self._time_out(tunnel, stalled)
        for tunnel in list(self._closing.values()):
            if tunnel.closing_since == 0.0:
                tunnel.closing_since = now
            elif now - tunnel.closing_since >= CLOSE_ANSWER_SECONDS:
                commands += self._give_up_closing(tunnel)
        return commands

    def _time_out(self, tunnel: Tunnel, stalled: set[int]) -> list[Command]:
        link = tunnel.link
        assert link is not None
        if link.key in stalled:
            failure = DialFailure(FailureReason.SEND_TIMED_OUT)
            return [*self._refuse(tunnel, failure), RetireAgent(link)]
        cancel = ToAgent(link, packets.DIAL_CLS, packets.encode_close_dial(tunnel.dial_id))
        return [*self._refuse(tunnel, DialFailure(FailureReason.DIAL_TIMED_OUT)), cancel]

    def _give_up_closing(self, tunnel: Tunnel) -> list[Command]:
        link = tunnel.link
        if link is not None:
            link.connections.pop(tunnel.connection_id, None)
        self._end(tunnel)
        return [CloseTunnel(tunnel, "agent did not answer the close", "agent did not answer the close")]
