"""The server's rules: pending dials and tunnels. Events in, commands out.

Connections belong to the agent's link, not to its ID: two streams of one agent use the same connection IDs
(fault crossed-streams).
"""

from typing import Final

from umbilical.konnectivity.caps import Caps
from umbilical.konnectivity.commands import (
    CloseTunnel,
    Command,
    CountDialFailure,
    OpenTunnel,
    RefuseDial,
    ReportRedial,
    RetireAgent,
    ToAgent,
)
from umbilical.konnectivity.dial_failure import NO_AGENT_TEXT, DialFailure, FailureReason, metric_reason
from umbilical.konnectivity.health import OWED_SECONDS, AgentHealth
from umbilical.konnectivity.links import CLOSING, ENDED, ESTABLISHED, PENDING, AgentLink, Tunnel
from umbilical.konnectivity.routing import AgentRouter
from umbilical.wire import packets
from umbilical.wire.packets import DialResponse

REMEMBERED_ORPHANS: Final = 4_096
"""How many unknown connection IDs per agent are remembered, to answer their DATA only once."""
CLOSE_ANSWER_SECONDS: Final = 60.0
"""How long an agent may take to flush and answer a CLOSE_REQ before the tunnel is forgotten."""
LONGEST_ADDRESS: Final = 1_024
"""Characters. A DNS name has at most 253."""
LINKS_PER_DIAL: Final = 3
"""How many agents a dial is sent to before it fails: agents that are lost together have one cause, and a dial that
crashes agents must not reach all of them."""


class TunnelRegistry:
    def __init__(self, router: AgentRouter, caps: Caps | None = None) -> None:
        self.router: Final = router
        self.caps: Final = caps or Caps()
        self._pending: Final[dict[int, Tunnel]] = {}
        """By serial number, so oldest first: all dials have the same time limit."""
        self._closing: Final[dict[int, Tunnel]] = {}
        self._health: Final = AgentHealth()
        self._stalled: Final[dict[int, float]] = {}
        """By link key: when its stream was first seen to take no bytes while a dial was pending."""
        self._established = 0
        self._serial = 0

    def pending_count(self) -> int:
        return len(self._pending)

    def established_count(self) -> int:
        return self._established

    def closing_count(self) -> int:
        return len(self._closing)

    def needs_time(self) -> bool:
        """Whether `time_passed` must be called."""
        return bool(self._pending or self._closing or self._stalled) or not self._health.is_empty()

    def agent_connected(self, link: AgentLink) -> None:
        self.router.add(link)

    def agent_draining(self, link: AgentLink) -> None:
        link.draining = True
        link.weigh()

    def agent_silent(self, link: AgentLink, now: float, draw: int) -> list[Command]:
        """It does not answer a ping. It may recover, so its tunnels stay, but its pending dials go to other agents."""
        return self._desert(link, "it answers no ping", now, draw) if link.pending else []

    def agent_gone(self, link: AgentLink, cause: str, draw: int) -> list[Command]:
        """All tunnels of this stream end now, without a timeout (fault hanging-dial).

        Dials that it did not answer go to other agents: their clients have received nothing yet.
        """
        self.router.remove(link)
        self._health.forget(link)
        self._stalled.pop(link.key, None)
        commands: list[Command] = []
        for tunnel in list(link.pending.values()):
            other = self._another(tunnel, link, draw)
            if other is not None:
                commands += self._take_over(tunnel, link, other, cause)
            else:
                commands += self._refuse(tunnel, DialFailure(FailureReason.AGENT_LOST))
            draw += 1
        for tunnel in list(link.connections.values()):
            self._end(tunnel)
            commands.append(CloseTunnel(tunnel, "", cause))
        link.connections.clear()
        return commands

    def dialled(self, tunnel: Tunnel, protocol: str, draw: int, moment: int = 0) -> list[Command]:
        """A client dials `tunnel.address`; `draw` and `moment` are for `AgentRouter.choose`."""
        if len(tunnel.address) > LONGEST_ADDRESS or len(protocol) > LONGEST_ADDRESS:
            return self._refuse_at_once(tunnel, DialFailure(FailureReason.AGENT_ERROR, "dial address is too long"))
        # The worker that asked for it has counted it.
        capped = self.caps.refusal_of_dial(tunnel.owner, tunnel.asked_at) if tunnel.may_relay else ""
        if capped:
            return self._refuse_at_once(tunnel, DialFailure(FailureReason.CAPPED, capped))
        link = self._choose(tunnel, draw, moment)
        if link is None:
            return self._refuse_at_once(tunnel, DialFailure(FailureReason.NO_AGENT))
        capped = "" if link.is_sibling else self.caps.refusal_of_load(link.agent_id, link.load())
        if capped:
            return self._refuse_at_once(tunnel, DialFailure(FailureReason.CAPPED, capped))
        if tunnel.dial_id in link.pending:
            return self._refuse_at_once(tunnel, DialFailure(FailureReason.AGENT_ERROR, "dial ID is already in use"))
        self._serial += 1
        tunnel.serial = self._serial
        tunnel.protocol = protocol
        if tunnel.owner:
            self.caps.opened(tunnel.owner)
        self._pending[tunnel.serial] = tunnel
        return [self._ask(tunnel, link)]

    def _choose(self, tunnel: Tunnel, draw: int, moment: int = 0) -> AgentLink | None:
        link = self.router.choose(tunnel.address, draw, moment)
        if link is None and tunnel.may_relay:
            link = self.router.choose_sibling(tunnel.links_before, draw)
        return link

    def _ask(self, tunnel: Tunnel, link: AgentLink) -> Command:
        tunnel.link = link
        link.pending[tunnel.dial_id] = tunnel
        link.weigh()
        message = packets.encode_dial_request(tunnel.protocol, tunnel.address, tunnel.dial_id)
        return ToAgent(link, packets.DIAL_REQ, message)

    def _another(self, tunnel: Tunnel, left: AgentLink, draw: int) -> AgentLink | None:
        """Another agent for a dial that `left` can no longer answer."""
        if len(tunnel.links_before) + 1 >= LINKS_PER_DIAL:
            return None
        link = self._choose(tunnel, draw)
        if link is None or link is left or link.key in tunnel.links_before or tunnel.dial_id in link.pending:
            return None
        return link

    def _take_over(self, tunnel: Tunnel, left: AgentLink, link: AgentLink, cause: str) -> list[Command]:
        """Send the dial to another agent. Its time limit is not extended."""
        left.pending.pop(tunnel.dial_id, None)
        left.weigh()
        tunnel.links_before = (*tunnel.links_before, left.key)
        return [ReportRedial(tunnel, left, cause), self._ask(tunnel, link)]

    def _refuse_at_once(self, tunnel: Tunnel, failure: DialFailure) -> list[Command]:
        tunnel.state = ENDED
        return [*_count(tunnel, failure), RefuseDial(tunnel, failure)]

    def agent_answered(self, link: AgentLink, answer: DialResponse, now: float) -> list[Command]:
        tunnel = link.pending.get(answer.dial_id)
        if tunnel is None:
            return self._orphan_answer(link, answer, now)
        if link.unanswered_dials or link.sick:
            return self._health.answered(link) + self._answered(link, tunnel, answer, now)
        return self._answered(link, tunnel, answer, now)

    def _answered(self, link: AgentLink, tunnel: Tunnel, answer: DialResponse, now: float) -> list[Command]:
        if answer.error:
            if link.is_sibling and answer.error == NO_AGENT_TEXT:
                return self._relay_on(link, tunnel)
            return self._refuse(tunnel, DialFailure(FailureReason.AGENT_ERROR, answer.error))
        if answer.connection_id == 0 or answer.connection_id in link.connections:
            text = f"agent answered with connection ID {answer.connection_id}, which is not free"
            return self._refuse(tunnel, DialFailure(FailureReason.AGENT_ERROR, text))
        # From one table to the other: the load stays the same.
        del self._pending[tunnel.serial]
        del link.pending[answer.dial_id]
        tunnel.connection_id = answer.connection_id
        tunnel.opened_at = now
        tunnel.state = ESTABLISHED
        link.connections[answer.connection_id] = tunnel
        self._established += 1
        return [OpenTunnel(tunnel)]

    def _relay_on(self, link: AgentLink, tunnel: Tunnel) -> list[Command]:
        """This worker has no agent for the dial: ask the next one, or an agent that came meanwhile."""
        tunnel.links_before = (*tunnel.links_before, link.key)
        other = self._choose(tunnel, tunnel.serial)
        if other is None or tunnel.dial_id in other.pending:
            return self._refuse(tunnel, DialFailure(FailureReason.NO_AGENT))
        link.pending.pop(tunnel.dial_id, None)
        link.weigh()
        return [self._ask(tunnel, other)]

    def _orphan_answer(self, link: AgentLink, answer: DialResponse, now: float) -> list[Command]:
        """The dial was cancelled or has timed out: the agent must close the socket that it opened."""
        if self._health.is_reply(link, answer):
            commands = self._health.replied(link, now)
        else:
            commands = [CountDialFailure(metric_reason(DialFailure(FailureReason.UNRECOGNIZED)))]
        if answer.connection_id:
            commands += self.orphan_data(link, answer.connection_id)
        return commands

    def _refuse(self, tunnel: Tunnel, failure: DialFailure) -> list[Command]:
        self._forget_pending(tunnel)
        self._end(tunnel)
        return [*_count(tunnel, failure), RefuseDial(tunnel, failure)]

    def _forget_pending(self, tunnel: Tunnel) -> None:
        self._pending.pop(tunnel.serial, None)
        link = tunnel.link
        if link is not None:
            link.pending.pop(tunnel.dial_id, None)
            link.weigh()

    def client_closed(self, tunnel: Tunnel, now: float) -> list[Command]:
        """The client closed, cancelled its dial, or left; what it wrote before has been sent to the agent."""
        link = tunnel.link
        if link is None or tunnel.state in (CLOSING, ENDED):
            return []
        if tunnel.state == PENDING:
            self._forget_pending(tunnel)
            self._end(tunnel)
            reason = metric_reason(DialFailure(FailureReason.CANCELLED))
            commands: list[Command] = [CountDialFailure(reason), _cancel(tunnel, link)]
            if now - tunnel.asked_at >= OWED_SECONDS:
                commands += self._blame(tunnel, link, now)
            return commands
        tunnel.state = CLOSING
        self._closing[tunnel.serial] = tunnel
        return [ToAgent(link, packets.CLOSE_REQ, packets.encode_close_request(tunnel.connection_id))]

    def agent_closed(self, link: AgentLink, connection_id: int, error: str) -> list[Command]:
        """CLOSE_RSP: the endpoint ended, or a requested close is done."""
        tunnel = link.connections.pop(connection_id, None)
        if tunnel is None:
            return []
        link.weigh()
        cause = "client closed" if tunnel.state == CLOSING else "endpoint closed"
        self._end(tunnel)
        return [CloseTunnel(tunnel, error, cause)]

    def agent_cancelled_dial(self, link: AgentLink, dial_id: int) -> list[Command]:
        tunnel = link.pending.get(dial_id)
        if tunnel is None:
            return []
        commands = self._health.answered(link)
        return commands + self._refuse(tunnel, DialFailure(FailureReason.AGENT_ERROR, "dial closed"))

    def _end(self, tunnel: Tunnel) -> None:
        if tunnel.state in (ESTABLISHED, CLOSING):
            self._established -= 1
            self._closing.pop(tunnel.serial, None)
        tunnel.state = ENDED
        if tunnel.owner:
            self.caps.ended(tunnel.owner)
            tunnel.owner = ""

    def orphan_data(self, link: AgentLink, connection_id: int) -> list[Command]:
        """DATA of an unknown connection: request its close once, not once per packet (fault close-storm)."""
        orphans = link.answered_orphans
        if connection_id == 0 or connection_id in orphans:
            return []
        if len(orphans) >= REMEMBERED_ORPHANS:
            del orphans[next(iter(orphans))]
        orphans[connection_id] = None
        return [ToAgent(link, packets.CLOSE_REQ, packets.encode_close_request(connection_id))]

    def time_passed(self, now: float, dial_timeout: float, stalled: list[AgentLink], draw: int) -> list[Command]:
        """Refuse dials that have timed out, and act on agents that do not answer.

        `stalled` are the links with streams that took no bytes for half of the dial timeout.
        """
        commands: list[Command] = []
        retired: list[AgentLink] = []
        if dial_timeout > 0:
            for tunnel in list(self._pending.values()):
                if now - tunnel.asked_at < dial_timeout:
                    break
                commands += self._time_out(tunnel, stalled, retired, now)
        for link in stalled:
            if link not in retired:
                commands += self._on_stalled(link, now, draw)
                if 0 < dial_timeout / 2 <= now - self._stalled.get(link.key, now):
                    retired.append(link)
        self._forget_moving(stalled)
        commands += self._health.probe(now)
        for tunnel in list(self._closing.values()):
            if tunnel.closing_since == 0.0:
                tunnel.closing_since = now
            elif now - tunnel.closing_since >= CLOSE_ANSWER_SECONDS:
                commands += self._give_up_closing(tunnel)
        # Last: the commands above for these agents need their streams.
        commands += [RetireAgent(link) for link in retired]
        return commands

    def _time_out(
        self, tunnel: Tunnel, stalled: list[AgentLink], retired: list[AgentLink], now: float
    ) -> list[Command]:
        link = tunnel.link
        assert link is not None
        if link in stalled:
            if link not in retired:
                retired.append(link)
            return self._refuse(tunnel, DialFailure(FailureReason.SEND_TIMED_OUT))
        refusal = self._refuse(tunnel, DialFailure(FailureReason.DIAL_TIMED_OUT))
        return [*refusal, _cancel(tunnel, link), *self._blame(tunnel, link, now)]

    def _blame(self, tunnel: Tunnel, link: AgentLink, now: float) -> list[Command]:
        # A second agent had only the rest of the time limit.
        return [] if tunnel.links_before or link.is_sibling else self._health.left_unanswered(link, now)

    def _on_stalled(self, link: AgentLink, now: float, draw: int) -> list[Command]:
        """Its stream takes no bytes: its dials go to other agents, its tunnels may still recover."""
        if not link.pending:
            return []
        self._stalled.setdefault(link.key, now)
        return self._desert(link, "its stream takes no packets", now, draw)

    def _desert(self, link: AgentLink, cause: str, now: float, draw: int) -> list[Command]:
        """Make it the last choice, and send its pending dials to healthy agents."""
        commands = self._health.mark_sick(link, cause, now)
        for tunnel in list(link.pending.values()):
            other = self._another(tunnel, link, draw)
            if other is not None and not other.sick:
                commands += self._take_over(tunnel, link, other, cause)
                commands.append(_cancel(tunnel, link))  # it may still read the request when it recovers
            draw += 1
        return commands

    def _forget_moving(self, stalled: list[AgentLink]) -> None:
        if self._stalled:
            keys = {link.key for link in stalled}
            for key in list(self._stalled):
                if key not in keys:
                    del self._stalled[key]

    def _give_up_closing(self, tunnel: Tunnel) -> list[Command]:
        link = tunnel.link
        if link is not None:
            link.connections.pop(tunnel.connection_id, None)
            link.weigh()
        self._end(tunnel)
        return [CloseTunnel(tunnel, "agent did not answer the close", "agent did not answer the close")]


def _count(tunnel: Tunnel, failure: DialFailure) -> list[Command]:
    """The worker that relayed a dial here counts its failure."""
    return [CountDialFailure(metric_reason(failure))] if tunnel.may_relay else []


def _cancel(tunnel: Tunnel, link: AgentLink) -> Command:
    return ToAgent(link, packets.DIAL_CLS, packets.encode_close_dial(tunnel.dial_id))
