"""The buckets that floods empty and honest life does not."""

from umbilical.wire.http2.flow import REFILL_PER_FRAME, Allowance


def spend(allowance: Allowance, count: int, now: float) -> int:
    return sum(allowance.spend(now) for _ in range(count))


def test_a_burst_is_allowed_and_no_more() -> None:
    assert spend(Allowance(10, 1.0), 15, 0.0) == 10


def test_time_refills_up_to_the_burst() -> None:
    allowance = Allowance(10, 2.0)
    spend(allowance, 10, 100.0)
    assert spend(allowance, 20, 103.0) == 6
    assert spend(allowance, 20, 1_000_000.0) == 10


def test_a_clock_that_stands_or_runs_backwards_refills_nothing() -> None:
    allowance = Allowance(3, 1000.0)
    spend(allowance, 3, 50.0)
    assert not allowance.spend(50.0)
    assert not allowance.spend(10.0)


def test_an_overdrawn_peer_recovers_by_waiting() -> None:
    allowance = Allowance(2, 1.0)
    spend(allowance, 3, 0.0)
    assert not allowance.spend(1.0)
    assert allowance.spend(100.0)


def test_traffic_earns_a_few_back_but_not_a_new_burst() -> None:
    allowance = Allowance(1000, 0.0)
    spend(allowance, 1000, 0.0)
    allowance.refill()
    assert spend(allowance, 100, 0.0) == REFILL_PER_FRAME


def test_traffic_never_earns_more_than_the_burst() -> None:
    allowance = Allowance(10, 0.0)
    for _ in range(100):
        allowance.refill()
    assert spend(allowance, 100, 0.0) == 10
