"""Agents that leave dials unanswered: last choice until they answer one in time (faults dead-agent, silent-agent).

healthy -> sick   three dials in a row without an answer; or, while a dial is pending, a stream that takes no bytes or
                  a ping without an answer
sick -> healthy   an answer in time: to a dial that had no other agent, or to a probe
"""

from typing import Final

from umbilical.konnectivity.commands import Command, ReportHealth, ToAgent
from umbilical.konnectivity.links import AgentLink
from umbilical.wire import packets
from umbilical.wire.packets import DialResponse

UNANSWERED_IN_A_ROW: Final = 3
OWED_SECONDS: Final = 6.0
"""Agents, upstream's too, answer with an error when a connect takes more than 5 s. One that takes a second longer has
failed, even if the client has left meanwhile; a client that left sooner proves nothing about the agent."""
PROBE_SECONDS: Final = 10.0
PROBE_ADDRESS: Final = "the-server-asks-whether-you-dial-again"
"""Has no port, so every agent answers with an error at once, without a lookup or a connect."""


class AgentHealth:
    """The sick agents, and the probes sent to them."""

    def __init__(self) -> None:
        self._sick: Final[dict[int, AgentLink]] = {}

    def is_empty(self) -> bool:
        return not self._sick

    def left_unanswered(self, link: AgentLink, now: float) -> list[Command]:
        """A dial timed out, or its client left after OWED_SECONDS."""
        link.unanswered_dials += 1
        if link.unanswered_dials < UNANSWERED_IN_A_ROW:
            return []
        return self.mark_sick(link, f"{UNANSWERED_IN_A_ROW} dials in a row got no answer", now)

    def mark_sick(self, link: AgentLink, cause: str, now: float) -> list[Command]:
        if link.sick:
            return []
        link.sick = True
        link.probe_due_at = now + PROBE_SECONDS
        link.weigh()
        self._sick[link.key] = link
        return [ReportHealth(link, cause)]

    def answered(self, link: AgentLink) -> list[Command]:
        """A dial was answered in time. An error counts too: then the endpoint failed, not the agent."""
        link.unanswered_dials = 0
        if not link.sick:
            return []
        link.sick = False
        link.weigh()
        del self._sick[link.key]
        return [ReportHealth(link, "it answers dials again")]

    def forget(self, link: AgentLink) -> None:
        self._sick.pop(link.key, None)

    def probe(self, now: float) -> list[Command]:
        """Probe agents that have been sick for `PROBE_SECONDS` and have answered the last probe.

        Without probes, a sick agent gets no dials while others are healthy, and so cannot recover.
        """
        commands: list[Command] = []
        for link in self._sick.values():
            if link.probed_at == 0.0 and now >= link.probe_due_at:
                link.probed_at = now
                message = packets.encode_dial_request("tcp", PROBE_ADDRESS, probe_id(link))
                commands.append(ToAgent(link, packets.DIAL_REQ, message))
        return commands

    def is_reply(self, link: AgentLink, answer: DialResponse) -> bool:
        return link.probed_at > 0.0 and answer.dial_id == probe_id(link)

    def replied(self, link: AgentLink, now: float) -> list[Command]:
        is_in_time = now - link.probed_at <= OWED_SECONDS
        link.probed_at = 0.0
        link.probe_due_at = now  # one that recovers is probed again at once, one that is always late at its own pace
        return self.answered(link) if is_in_time else []


def probe_id(link: AgentLink) -> int:
    """Negative, unlike the dial IDs of clients: upstream's are 63 random bits."""
    return -link.key
