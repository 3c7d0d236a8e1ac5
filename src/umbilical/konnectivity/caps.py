"""What an operator allows at most: agents, tunnels of one agent and of one client, dials per second. Zero: no limit."""

from typing import Final

AGENTS: Final = "agents"
AGENT_TUNNELS: Final = "agent_tunnels"
CLIENT_TUNNELS: Final = "client_tunnels"
DIALS: Final = "dials"


class Caps:
    """The limits, what clients have open, and how often each limit refused something."""

    def __init__(self, agents: int = 0, agent_tunnels: int = 0, client_tunnels: int = 0, dial_rate: int = 0) -> None:
        self.refused: Final[dict[str, int]] = {}
        self._agents: Final = agents
        self._agent_tunnels: Final = agent_tunnels
        self._client_tunnels: Final = client_tunnels
        self._dial_rate: Final = dial_rate
        self._open: Final[dict[str, int]] = {}
        """Tunnels and dials by client."""
        self._dials_left = float(dial_rate)
        self._counted_at = 0.0
        self.knows_clients: Final = client_tunnels > 0

    def refusal_of_agent(self, connected: int) -> str:
        """Why one more agent is refused; empty if it is not."""
        if not self._agents or connected < self._agents:
            return ""
        return self._refuse(AGENTS, f"{connected:,} agents are connected, --max-agents is {self._agents}")

    def refusal_of_dial(self, client: str, now: float) -> str:
        """Why this client's dial is refused; empty if it is not, and then it counts."""
        if self._client_tunnels and self._open.get(client, 0) >= self._client_tunnels:
            who = client or "the client"
            return self._refuse(CLIENT_TUNNELS, f"{who} has --max-client-tunnels={self._client_tunnels} tunnels open")
        if self._dial_rate and not self._take_dial(now):
            return self._refuse(DIALS, f"more than --max-dial-rate={self._dial_rate} dials in a second")
        return ""

    def _take_dial(self, now: float) -> bool:
        gained = (now - self._counted_at) * self._dial_rate
        self._counted_at = now
        self._dials_left = min(float(self._dial_rate), self._dials_left + gained)
        if self._dials_left < 1.0:
            return False
        self._dials_left -= 1.0
        return True

    def refusal_of_load(self, agent_id: str, load: int) -> str:
        """Why the agent that would get the dial does not; empty if it does."""
        if not self._agent_tunnels or load < self._agent_tunnels:
            return ""
        text = f"agent {agent_id} has --max-agent-tunnels={self._agent_tunnels} tunnels open"
        return self._refuse(AGENT_TUNNELS, text)

    def _refuse(self, cap: str, text: str) -> str:
        self.refused[cap] = self.refused.get(cap, 0) + 1
        return text

    def opened(self, client: str) -> None:
        self._open[client] = self._open.get(client, 0) + 1

    def ended(self, client: str) -> None:
        left = self._open[client] - 1
        if left:
            self._open[client] = left
        else:
            del self._open[client]
