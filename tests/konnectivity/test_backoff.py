import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.konnectivity.backoff import SyncSchedule

draws = st.floats(0.0, 1.0, exclude_max=True)


def test_failures_wait_half_as_long_again_up_to_the_cap() -> None:
    schedule = SyncSchedule(1.0, 10.0)
    waits = [schedule.after_failure(0.0) for _ in range(9)]
    assert waits == pytest.approx([1, 1.5, 2.25, 3.375, 5.0625, 7.59375, 10, 10, 10])


def test_success_and_duplicate_return_to_the_steady_beat() -> None:
    schedule = SyncSchedule(1.0, 10.0)
    for _ in range(5):
        schedule.after_failure(0.0)
    assert schedule.after_duplicate(0.0) == 1.0
    assert schedule.after_failure(0.0) == 1.0
    assert schedule.after_failure(0.0) == 1.5
    assert schedule.after_success(0.0) == 1.0
    assert schedule.after_failure(0.0) == 1.0


def test_an_interval_equal_to_its_cap_never_grows() -> None:
    schedule = SyncSchedule(2.0, 2.0)
    assert [schedule.after_failure(0.0) for _ in range(3)] == [2.0, 2.0, 2.0]


@given(draws, st.integers(0, 50))
def test_jitter_lengthens_by_less_than_a_tenth(draw: float, failures: int) -> None:
    plain, jittered = SyncSchedule(0.1, 1.0), SyncSchedule(0.1, 1.0)
    for _ in range(failures):
        plain.after_failure(0.0)
        jittered.after_failure(draw)
    wait, longer = plain.after_failure(0.0), jittered.after_failure(draw)
    assert wait <= longer <= wait * 1.1 + 1e-9
    assert 0.1 <= plain.after_success(draw) <= 0.11 + 1e-9
