"""Answers are kept as long as they may be, and not more of them than is good."""

from hypothesis import given
from hypothesis import strategies as st
from tests.proxies.name_scenes import TurnedClock

from umbilical.proxies.dns_cache import MOST_ENTRIES, Cache


def test_an_answer_is_there_until_its_time_is_over() -> None:
    clock = TurnedClock()
    cache = Cache[str, str](clock.now)
    cache.put("a", "1", 30)
    clock.turn(29.9)
    assert cache.get("a") == "1"
    clock.turn(0.1)
    assert cache.get("a") is None
    assert len(cache) == 0


def test_an_answer_without_time_is_not_kept() -> None:
    cache = Cache[str, str](TurnedClock().now)
    cache.put("a", "1", 0)
    assert cache.get("a") is None


def test_the_least_recently_used_makes_room() -> None:
    cache = Cache[str, str](TurnedClock().now, most_entries=2)
    cache.put("a", "1", 30)
    cache.put("b", "2", 30)
    assert cache.get("a") == "1"
    cache.put("c", "3", 30)
    assert [cache.get(key) for key in "abc"] == ["1", None, "3"]


def test_a_newer_answer_replaces_an_older_and_can_be_forgotten() -> None:
    clock = TurnedClock()
    cache = Cache[str, str](clock.now)
    cache.put("a", "1", 10)
    clock.turn(9)
    cache.put("a", "2", 10)
    clock.turn(9)
    assert cache.get("a") == "2"
    cache.forget("a")
    cache.forget("never there")
    assert cache.get("a") is None


def test_clients_cannot_fill_the_memory_by_asking_for_names() -> None:
    cache = Cache[int, str](TurnedClock().now)
    for number in range(2 * MOST_ENTRIES):
        cache.put(number, "x", 300)
    assert len(cache) == MOST_ENTRIES


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 5), st.integers(0, 3)), max_size=60))
def test_it_never_gives_what_is_older_than_it_may_be(steps: list[tuple[int, int, int]]) -> None:
    clock = TurnedClock()
    cache = Cache[int, float](clock.now, most_entries=4)
    for key, seconds, pause in steps:
        cache.put(key, clock.seconds + seconds, seconds)
        clock.turn(pause)
        assert len(cache) <= 4
        for other in range(10):
            expires = cache.get(other)
            assert expires is None or expires > clock.seconds
