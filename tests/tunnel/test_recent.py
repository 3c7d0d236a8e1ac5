"""What is kept of the last minutes: counts by code, rings with a bound, and nothing of dials that succeed."""

from tests.support.data_plane import HandClock

from umbilical.konnectivity.dial_failure import PROBE_ADDRESS
from umbilical.tunnel.exposition import Histogram
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.recent import MOST_CHARACTERS, MOST_FAILURES, MOST_LOST, MOST_REFUSED, RecentTroubles


def fail(recent: RecentTroubles, code: str = "UMB401", address: str = "a:1", agent: str = "a1") -> None:
    recent.dial_failed(address, "CN=web", agent, code, "why", 0.5)


def test_dials_are_counted_over_the_window_only(plane: Loop, clock: HandClock) -> None:
    dials = Histogram((1.0,))
    recent = RecentTroubles(plane, dials)
    recent.start()
    for _ in range(60):  # ten minutes, in each of whose sixths of a minute one dial succeeds
        dials.observe(0.1)
        clock.advance(10.0)
    found = recent.dials()
    assert (round(found.seconds), found.succeeded, found.failed) == (300, 30, {})
    fail(recent)
    fail(recent, "UMB406")
    fail(recent)
    assert recent.dials().failed == {"UMB401": 2, "UMB406": 1}
    for _ in range(31):
        clock.advance(10.0)
    assert (recent.dials().succeeded, recent.dials().failed) == (0, {})
    assert recent.since(list(recent.failures)) == []
    recent.stop()


def test_a_probe_that_an_agent_answered_is_no_failure(plane: Loop) -> None:
    recent = RecentTroubles(plane, Histogram((1.0,)))
    recent.start()
    fail(recent, "UMB401", PROBE_ADDRESS)
    assert (recent.dials().failed, list(recent.failures)) == ({}, [])
    fail(recent, "UMB406", PROBE_ADDRESS)
    assert recent.dials().failed == {"UMB406": 1}


def test_every_table_is_bounded(plane: Loop) -> None:
    recent = RecentTroubles(plane, Histogram((1.0,)))
    recent.start()
    for number in range(2 * MOST_LOST):
        fail(recent, agent=f"a{number}", address="x" * 10_000)
        recent.agent_lost(f"a{number}", "UMB302", "y" * 10_000, number)
        recent.peer_refused("10.0.0.1:1", "UMB307", "z" * 10_000)
    assert (len(recent.failures), len(recent.refused)) == (MOST_FAILURES, MOST_REFUSED)
    assert (len(recent.lost), len(recent.last_errors)) == (MOST_LOST, MOST_LOST)
    assert recent.dials().failed == {"UMB401": 2 * MOST_LOST}
    kept = [*recent.failures, *recent.refused, *recent.lost.values()]
    assert max(len(one.text) + len(one.name) for one in kept) <= 2 * MOST_CHARACTERS
    assert list(recent.lost)[-1] == f"a{2 * MOST_LOST - 1}"


def test_a_dial_without_an_agent_is_no_agents_error(plane: Loop) -> None:
    recent = RecentTroubles(plane, Histogram((1.0,)))
    fail(recent, "UMB405", agent="")
    assert recent.last_errors == {}
