"""Agents that leave dials unanswered: last choice until they answer one in time (faults dead-agent, silent-agent).

well -> sick      three dials in a row without an answer; or, while a dial waits for it, a stream that takes nothing or
                  silence where a ping was to be answered
sick -> well      an answer in time: to a dial that came to it for lack of others, or to our own question
"""

from typing import Final

from umbilical.konnectivity.commands import Command, ReportHealth, ToAgent
from umbilical.konnectivity.links import AgentLink
from umbilical.wire import packets
from umbilical.wire.packets import DialResponse

UNANSWERED_IN_A_ROW: Final = 3
OWED_SECONDS: Final = 6.0
"""Agents, upstream's as well, give up a connect after 5 s and say so. Whoever is silent a second longer owes an answer,
also to a client that has left meanwhile; a client that left sooner proves nothing about the agent."""
PROBE_SECONDS: Final = 10.0
PROBE_ADDRESS: Final = "the-server-asks-whether-you-dial-again"
"""Has no port, so that every agent answers with an error at once, and asks neither a resolver nor the network."""


class AgentHealth:
    """The links that are sick."""

    def __init__(self) -> None:
        self._sick: Final[dict[int, AgentLink]] = {}

    def is_empty(self) -> bool:
        return not self._sick

    def left_unanswered(self, link: AgentLink, now: float) -> list[Command]:
        """A dial timed out, or its client gave up after so long that an answer was owed."""
        link.unanswered_dials += 1
        if link.unanswered_dials < UNANSWERED_IN_A_ROW:
            return []
        return self.admit(link, f"{UNANSWERED_IN_A_ROW} dials in a row got no answer", now)

    def admit(self, link: AgentLink, cause: str, now: float) -> list[Command]:
        if link.sick:
            return []
        link.sick = True
        link.probe_due_at = now + PROBE_SECONDS
        link.weigh()
        self._sick[link.key] = link
        return [ReportHealth(link, cause)]

    def answered(self, link: AgentLink) -> list[Command]:
        """A dial was answered in time. An error counts too: it is the endpoint that failed then, not the agent."""
        link.unanswered_dials = 0
        if not link.sick:
            return []
        link.sick = False
        link.weigh()
        del self._sick[link.key]
        return [ReportHealth(link, "it answers dials again")]

    def forget(self, link: AgentLink) -> None:
        self._sick.pop(link.key, None)

    # Without it, an agent among others would get no dial to show itself by, and stay the last choice for ever.

    def ask(self, now: float) -> list[Command]:
        """Ask those who owe no answer, first when they have been sick for `PROBE_SECONDS`."""
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
        link.probe_due_at = now  # one that has just woken up need not wait; one that is always late sets its own pace
        return self.answered(link) if is_in_time else []


def probe_id(link: AgentLink) -> int:
    """Below zero, where no dial ID of a client is: upstream's are drawn from 63 bits."""
    return -link.key
