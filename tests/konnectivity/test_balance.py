"""Groups by themselves; that the right one is chosen among many is a property in test_routing."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from umbilical.konnectivity.balance import DRAINING_RANK, Group
from umbilical.konnectivity.commands import Tunnel
from umbilical.konnectivity.metadata import AgentIdentifiers
from umbilical.konnectivity.routing import AgentLink

Tracer = Callable[[FrameType, str, Any], Any]


def link(key: int, agent_id: str = "", load: int = 0) -> AgentLink:
    made = AgentLink(key, agent_id or f"a{key}", AgentIdentifiers())
    set_load(made, load)
    return made


def set_load(changed: AgentLink, load: int) -> None:
    changed.pending = {number: Tunnel(object(), number, "x:1", 0.0) for number in range(load)}
    changed.weigh()


def leave(gone: AgentLink) -> None:
    for seat in gone.seats:
        seat.group.leave(seat, gone)
    gone.seats.clear()


def test_a_group_of_one_gives_that_one_whatever_its_load() -> None:
    group, only = Group(), link(1, load=7)
    group.add(only)
    assert group.least_loaded(5) is only
    set_load(only, 9)
    assert group.least_loaded(5) is only


def test_a_group_that_shrinks_to_one_and_grows_again_knows_all_loads() -> None:
    group = Group()
    first, second, third = link(1, load=1), link(2), link(3, load=5)
    group.add(first)
    group.add(second)
    leave(second)
    set_load(first, 8)
    group.add(third)
    assert group.least_loaded(0) is third
    set_load(third, 9)
    assert group.least_loaded(0) is first


def test_a_group_that_everybody_left_starts_anew() -> None:
    group, first, second = Group(), link(1), link(2)
    group.add(first)
    group.add(second)
    leave(first)
    leave(second)
    assert not group.seats
    assert not group.is_well()
    group.add(link(3))
    assert group.is_well()


def test_a_link_that_is_added_twice_sits_once() -> None:
    group, one = Group(), link(1)
    group.add(one)
    group.add(one)
    leave(one)
    assert not group.seats


@pytest.mark.parametrize("count", [1, 2])
def test_a_group_is_well_while_one_link_is(count: int) -> None:
    group = Group()
    members = [link(number) for number in range(count)]
    for member in members:
        group.add(member)
    for member in members:
        assert group.is_well()
        member.draining = True
        member.weigh()
    assert not group.is_well()


def test_no_load_reaches_the_rank_of_those_that_drain() -> None:
    assert DRAINING_RANK > 10**9


def test_tunnels_spread_evenly_over_equal_agents() -> None:
    group = Group()
    members = [link(number) for number in range(200)]
    for member in members:
        group.add(member)
    for number in range(10_000):
        chosen = group.least_loaded(number * 7_919)
        chosen.pending[number] = Tunnel(object(), number, "x:1", 0.0)
        chosen.weigh()
    assert {member.load() for member in members} == {50}


def lines_of_a_dial(agents: int) -> int:
    """How many lines run for a choice, and for the load that comes and goes with it."""
    group = Group()
    for number in range(agents):
        group.add(link(number, load=3))
    lines = 0

    def count(_: FrameType, event: str, __: object) -> Tracer:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        chosen = group.least_loaded(1)
        chosen.connections[1] = Tunnel(object(), 1, "x:1", 0.0)
        chosen.weigh()
        del chosen.connections[1]
        chosen.weigh()
    finally:
        sys.settrace(before)
    return lines


def test_a_dial_takes_as_many_steps_with_two_hundred_agents_as_with_three() -> None:
    assert lines_of_a_dial(200) == lines_of_a_dial(3)
