"""What went wrong in the last minutes, for the status: failed dials, lost agents, peers that were refused.

Nothing is kept of a dial that succeeds: a counter that exists anyway is read every few seconds. Every table is bounded.
"""

from collections import deque
from typing import Final

from umbilical.konnectivity.dial_failure import PROBE_ADDRESS
from umbilical.tunnel.exposition import Histogram
from umbilical.tunnel.loop import Handler, Loop, Timer

WINDOW_SECONDS: Final = 300.0
SAMPLE_SECONDS: Final = 10.0
MOST_FAILURES: Final = 200
MOST_LOST: Final = 256
MOST_REFUSED: Final = 50
MOST_CHARACTERS: Final = 300
"""Of a text that is kept: peers choose some of them."""
_PROBE_ANSWER: Final = "UMB401"
"""The endpoint refused, which is what a probe of our own wants."""


class Trouble:
    """One of these, at a time of the loop's clock. Fields that do not apply are empty."""

    def __init__(self, at: float, code: str, text: str) -> None:
        self.at: Final = at
        self.code: Final = code
        self.text: Final = text[:MOST_CHARACTERS]
        self.name = ""
        """The endpoint that was dialled, the agent that was lost, or the peer that was refused."""
        self.client = ""
        self.agent = ""
        self.seconds = 0.0
        """How long the dial took."""
        self.links_before = 0
        """How many links to agents there were, with the one that was lost."""


class _Sample:
    """The counters at one moment."""

    def __init__(self, at: float, succeeded: int, failed: dict[str, int]) -> None:
        self.at: Final = at
        self.succeeded: Final = succeeded
        self.failed: Final = failed


class DialCounts:
    def __init__(self, seconds: float, succeeded: int, failed: dict[str, int]) -> None:
        self.seconds: Final = seconds
        self.succeeded: Final = succeeded
        self.failed: Final = failed
        """By code, or by the reason where there is no code."""


class RecentTroubles(Handler):
    def __init__(self, loop: Loop, dials: Histogram) -> None:
        """`dials` counts those that succeeded."""
        self._loop: Final = loop
        self._dials: Final = dials
        self._failed: Final[dict[str, int]] = {}
        """Since the start, by code."""
        self._samples: Final[deque[_Sample]] = deque(maxlen=int(WINDOW_SECONDS / SAMPLE_SECONDS) + 1)
        self._timer: Timer | None = None
        self.failures: Final[deque[Trouble]] = deque(maxlen=MOST_FAILURES)
        self.refused: Final[deque[Trouble]] = deque(maxlen=MOST_REFUSED)
        self.lost: Final[dict[str, Trouble]] = {}
        """By the agent's ID, oldest first."""
        self.last_errors: Final[dict[str, Trouble]] = {}
        """The last trouble of each agent, by its ID; of the agents that had one, the most recent."""

    def start(self) -> None:
        self._sample()
        self._timer = self._loop.after(SAMPLE_SECONDS, self)

    def stop(self) -> None:
        if self._timer is not None:
            self._loop.cancel(self._timer)
            self._timer = None

    def on_timer(self) -> None:
        self._timer = self._loop.after(SAMPLE_SECONDS, self)
        self._sample()

    def _sample(self) -> None:
        # Of a quiet time one copy is enough, which all its samples share.
        last = self._samples[-1].failed if self._samples else None
        failed = last if last is not None and last == self._failed else dict(self._failed)
        self._samples.append(_Sample(self._loop.now, self._dials.count, failed))

    def dial_failed(self, address: str, client: str, agent: str, code: str, text: str, seconds: float) -> None:
        """A dial failed; `code` is the reason's name where there is no code."""
        if address == PROBE_ADDRESS and code == _PROBE_ANSWER:
            return
        trouble = Trouble(self._loop.now, code, text)
        trouble.name = address[:MOST_CHARACTERS]
        trouble.client, trouble.agent, trouble.seconds = client, agent[:MOST_CHARACTERS], seconds
        self._failed[code] = self._failed.get(code, 0) + 1
        self.failures.append(trouble)
        if agent:
            self._remember(self.last_errors, agent, trouble)

    def agent_lost(self, agent: str, code: str, text: str, links_before: int) -> None:
        """Not one that drained or left in order."""
        trouble = Trouble(self._loop.now, code, text)
        trouble.name = agent[:MOST_CHARACTERS]
        trouble.links_before = links_before
        self._remember(self.lost, agent, trouble)
        self._remember(self.last_errors, agent, trouble)

    def peer_refused(self, peer: str, code: str, text: str) -> None:
        """A peer on the port for agents was not admitted."""
        trouble = Trouble(self._loop.now, code, text)
        trouble.name = peer
        self.refused.append(trouble)

    def _remember(self, table: dict[str, Trouble], agent: str, trouble: Trouble) -> None:
        key = agent[:MOST_CHARACTERS]
        table.pop(key, None)
        if len(table) >= MOST_LOST:
            del table[next(iter(table))]
        table[key] = trouble

    def dials(self) -> DialCounts:
        """Of the last `WINDOW_SECONDS`, or since the start if that is less."""
        now = self._loop.now
        first = _Sample(now, self._dials.count, self._failed)
        for sample in self._samples:
            if now - sample.at <= WINDOW_SECONDS:
                first = sample
                break
        failed = {code: count - first.failed.get(code, 0) for code, count in self._failed.items()}
        return DialCounts(
            now - first.at,
            self._dials.count - first.succeeded,
            {code: count for code, count in failed.items() if count},
        )

    def since(self, troubles: list[Trouble]) -> list[Trouble]:
        """Those of the window."""
        return [trouble for trouble in troubles if self._loop.now - trouble.at <= WINDOW_SECONDS]
