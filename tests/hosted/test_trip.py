"""What many trips come to: least, mean and most of every hop that was passed, and what was lost."""

from umbilical.hosted.trip import Failure, Hop, Spread, Trip, distinct_failures, summarize

REFUSED = Failure("dial", "UMB501", "refused", "what", "why", "next")
LOST = Failure("connect", "UMB507", "server", "what", "why", "next")


def trip(number: int, connect: float, dial: float, failure: Failure | None = None) -> Trip:
    return Trip(number, (Hop("connect", connect), Hop("agent", 0.0, "a1"), Hop("dial", dial)), failure)


def test_times_are_least_mean_and_most() -> None:
    summary = summarize([trip(1, 1.0, 2.0), trip(2, 3.0, 4.0)])
    assert summary.hops["connect"] == Spread(1.0, 2.0, 3.0)
    assert summary.hops["dial"] == Spread(2.0, 3.0, 4.0)
    assert summary.hops["total"] == Spread(3.0, 5.0, 7.0)
    assert "endpoint tls" not in summary.hops
    assert (summary.sent, summary.ok, summary.lost, summary.loss_percent) == (2, 2, 0, 0.0)


def test_a_hop_that_failed_counts_as_lost_and_not_as_time() -> None:
    summary = summarize([trip(1, 1.0, 2.0), trip(2, 3.0, 60.0, REFUSED)])
    assert summary.hops["dial"] == Spread(2.0, 2.0, 2.0)
    assert summary.hops["connect"] == Spread(1.0, 2.0, 3.0)
    assert summary.hops["total"] == Spread(3.0, 3.0, 3.0)
    assert (summary.lost, summary.loss_percent) == (1, 50.0)


def test_no_trip_at_all_is_no_division_by_zero() -> None:
    summary = summarize([])
    assert (summary.sent, summary.loss_percent, summary.hops) == (0, 0.0, {})


def test_the_agent_is_known_when_the_server_told() -> None:
    assert trip(1, 1.0, 1.0).agent == "a1"
    assert Trip(1, (Hop("connect", 1.0), Hop("dial", 1.0))).agent is None
    assert trip(1, 1.0, 1.0).hop("tls") is None


def test_every_failure_is_told_once_in_the_order_of_their_first() -> None:
    trips = [trip(1, 1.0, 1.0, REFUSED), trip(2, 1.0, 1.0), trip(3, 1.0, 1.0, LOST), trip(4, 1.0, 1.0, REFUSED)]
    assert distinct_failures(trips) == [REFUSED, LOST]
