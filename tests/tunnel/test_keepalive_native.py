"""A dead agent is out of use within 45 s with the defaults of our own commands, on a clock that stands still."""

import time

import pytest
from tests.support.in_process import RunningServer, Stage
from tests.support.scripted_peers import ScriptedAgent

from umbilical.cli.options import PING_AFTER, PING_ANSWER
from umbilical.cli.param_types import duration
from umbilical.tunnel.settings import Keepalive

OUT_OF_USE_SECONDS = 45


class StandingClock:
    """Moves only when the test says so; the loop gets turns enough to act on it."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self._stage = stage
        self._now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: self._now)

    def advance(self, seconds: float) -> None:
        self._now += seconds
        for _ in range(10):  # a ping out, its answer, and both behind what else had to be said
            self._stage.call(lambda: None)
            time.sleep(0.001)


def agents_of(server: RunningServer) -> list[str]:
    return server.stage.call(lambda: [link.agent_id for link in server.server.exchange.links.values()])


def test_a_dead_agent_is_out_of_use_in_time_and_a_live_one_stays(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """No dial is needed to find out. The dead one's socket stays open, and nobody reads from it."""
    server = stage.start_server(agent_keepalive=Keepalive(duration(PING_AFTER), duration(PING_ANSWER)))
    ScriptedAgent(server, "dead")
    stage.start_agent(server.agent_port).wait_until_ready()
    server.wait_for_agents(2)
    clock = StandingClock(stage, monkeypatch)
    seconds = 0
    while "dead" in agents_of(server):
        assert seconds < OUT_OF_USE_SECONDS, "still in use"
        clock.advance(1.0)
        seconds += 1
    assert agents_of(server) == ["agent-0"]
    assert seconds >= duration(PING_AFTER), "it was given up before it was asked"
