"""Groups by themselves; that the right one is chosen among many is a property in test_routing."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from tests.support.registry_driver import NO_CLIENT, RegistryDriver

from umbilical.konnectivity.health import OWED_SECONDS, PROBE_ADDRESS, PROBE_SECONDS, UNANSWERED_IN_A_ROW, probe_id
from umbilical.konnectivity.links import AgentLink, Group, Tunnel
from umbilical.konnectivity.metadata import AgentIdentifiers

Tracer = Callable[[FrameType, str, Any], Any]


def link(key: int, agent_id: str = "", load: int = 0) -> AgentLink:
    made = AgentLink(key, agent_id or f"a{key}", AgentIdentifiers())
    set_load(made, load)
    return made


def set_load(changed: AgentLink, load: int) -> None:
    changed.pending = {number: Tunnel(NO_CLIENT, number, "x:1", 0.0) for number in range(load)}
    changed.weigh()


def leave(gone: AgentLink) -> None:
    for slot in gone.slots:
        slot.group.leave(slot, gone)
    gone.slots.clear()


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
    assert not group.slots
    assert not group.is_well()
    group.add(link(3))
    assert group.is_well()


def test_a_link_that_is_added_twice_sits_once() -> None:
    group, one = Group(), link(1)
    group.add(one)
    group.add(one)
    leave(one)
    assert not group.slots


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


def chosen_in(group: Group, moment: int, dials: int) -> list[AgentLink]:
    """The choices for dials of one moment, whose draws differ; each adds to the load."""
    found = []
    for draw in range(dials):
        found.append(group.least_loaded(draw, moment))
        set_load(found[-1], found[-1].load() + 1)
    return found


@pytest.mark.parametrize("ill", [False, True])
def test_dials_of_one_moment_share_a_link_while_its_load_is_within_an_eighth_of_the_least(ill: bool) -> None:
    group = Group()
    members = [link(number, load=16) for number in range(4)]
    for member in members:
        member.draining = ill
        member.weigh()
        group.add(member)
    first = chosen_in(group, 7, 7)
    assert first == sorted(first, key=first.index), "one after the other"
    assert sorted(first.count(member) for member in members) == [0, 1, 3, 3]
    assert group.least_loaded(0, 8) not in first, "another moment, another choice"


def test_dials_of_one_moment_are_spread_while_loads_are_small() -> None:
    group = Group()
    members = [link(number, load=7) for number in range(4)]
    for member in members:
        group.add(member)
    assert sorted(one.key for one in chosen_in(group, 7, 4)) == [0, 1, 2, 3]


def test_dials_of_an_unknown_moment_share_nothing() -> None:
    group = Group()
    for number in range(4):
        group.add(link(number, load=100))
    assert len(set(chosen_in(group, 0, 4))) == 4


def test_a_link_that_left_or_drains_gets_no_further_dial_of_its_moment() -> None:
    group = Group()
    members = [link(number, load=100) for number in range(3)]
    for member in members:
        group.add(member)
    (first,) = chosen_in(group, 7, 1)
    leave(first)
    (second,) = chosen_in(group, 7, 1)
    assert second is not first
    second.draining = True
    second.weigh()
    assert chosen_in(group, 7, 1)[0] not in (first, second)


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
        chosen.connections[1] = Tunnel(NO_CLIENT, 1, "x:1", 0.0)
        chosen.weigh()
        del chosen.connections[1]
        chosen.weigh()
    finally:
        sys.settrace(before)
    return lines


def test_a_dial_takes_as_many_steps_with_two_hundred_agents_as_with_three() -> None:
    assert lines_of_a_dial(200) == lines_of_a_dial(3)


LIMIT = 10.0
SICK = f"tell: a1 is sick: {UNANSWERED_IN_A_ROW} dials in a row got no answer"
WELL = "tell: a1 is well: it answers dials again"


def time_out(scene: RegistryDriver, count: int, first_id: int = 1, at: float = 0.0) -> list[str]:
    for dial_id in range(first_id, first_id + count):
        scene.dial(dial_id, at=at)
    return [line for line in scene.passes(at + LIMIT, LIMIT) if line.startswith("tell")]


def make_sick(scene: RegistryDriver, at: float = 0.0) -> AgentLink:
    """The first agent of the scene, at `at` plus LIMIT."""
    link = scene.agent("a1")
    assert time_out(scene, UNANSWERED_IN_A_ROW, at=at) == [SICK]
    return link


def test_three_dials_in_a_row_without_an_answer_make_an_agent_the_last_choice(scene: RegistryDriver) -> None:
    sick = make_sick(scene)
    assert sick.sick
    other = scene.agent("a2")
    scene.tunnel(other, 10, 1)
    assert scene.dial(11).link is other
    scene.gone(other)
    assert scene.dial(12).link is sick


def test_an_answer_between_them_begins_the_count_anew(scene: RegistryDriver) -> None:
    link = scene.agent("a1")
    assert time_out(scene, 2) == []
    scene.dial(10)
    scene.answer(link, 10, error="connection refused")  # the endpoint's fault, not the agent's
    assert time_out(scene, 2, first_id=20) == []
    assert not link.sick


def test_it_is_told_once(scene: RegistryDriver) -> None:
    make_sick(scene)
    assert time_out(scene, 5, first_id=20) == []


@pytest.mark.parametrize("answer", [{"connection_id": 4}, {"error": "connection refused"}])
def test_an_answer_in_time_heals(scene: RegistryDriver, answer: dict[str, object]) -> None:
    link = make_sick(scene)
    scene.dial(10, at=LIMIT)
    told = scene.answer(link, 10, at=LIMIT + 1, **answer)  # type: ignore[arg-type]
    assert told[0] == WELL
    assert not link.sick


def test_a_dial_that_the_agent_closes_is_an_answer_too(scene: RegistryDriver) -> None:
    link = make_sick(scene)
    scene.dial(10, at=LIMIT)
    scene.registry.agent_cancelled_dial(link, 10)
    assert not link.sick


def test_an_answer_that_comes_too_late_heals_nobody(scene: RegistryDriver) -> None:
    """Else an agent that is always late would always be trusted again."""
    link = make_sick(scene)
    scene.answer(link, 1, connection_id=3)
    assert link.sick


def test_a_client_that_leaves_when_an_answer_is_owed_counts_as_a_timeout(scene: RegistryDriver) -> None:
    """Where dials have no time limit, nothing else ever would."""
    link = scene.agent("a1")
    for dial_id in range(UNANSWERED_IN_A_ROW):
        told = scene.close(scene.dial(dial_id + 1), at=OWED_SECONDS)
    assert told[-1] == SICK
    assert link.sick


def test_a_client_that_leaves_sooner_proves_nothing(scene: RegistryDriver) -> None:
    link = scene.agent("a1")
    for dial_id in range(9):
        scene.close(scene.dial(dial_id + 1), at=OWED_SECONDS - 0.1)
    assert not link.sick


def test_who_took_a_dial_over_is_not_blamed_for_the_time_that_was_left(scene: RegistryDriver) -> None:
    first = scene.agent("a0")
    for dial_id in range(1, 6):
        scene.dial(dial_id)
    second = scene.agent("a1")
    scene.gone(first)
    assert len(second.pending) == 5
    assert scene.passes(LIMIT, LIMIT).count("count backend_dial_timeout") == 5
    assert not second.sick


def test_a_new_stream_of_a_sick_agent_starts_well(scene: RegistryDriver) -> None:
    make_sick(scene)
    successor = scene.agent("a1")
    assert scene.dial(10).link is successor


def asked(link: AgentLink) -> str:
    return f"a1 <- DIAL_REQ tcp {PROBE_ADDRESS} dial={probe_id(link)}"


def test_a_sick_agent_is_asked_without_a_client_and_its_answer_heals(scene: RegistryDriver) -> None:
    link = make_sick(scene)
    assert scene.registry.needs_time()
    due = LIMIT + PROBE_SECONDS
    assert scene.passes(due - 0.1, LIMIT) == []
    assert scene.passes(due, LIMIT) == [asked(link)]
    assert scene.answer(link, probe_id(link), error="missing port in address", at=due + 1) == [WELL]
    assert not scene.registry.needs_time()


def test_one_question_is_open_at_a_time_however_long(scene: RegistryDriver) -> None:
    link = make_sick(scene)
    assert scene.passes(LIMIT + PROBE_SECONDS, LIMIT) == [asked(link)]
    assert scene.passes(LIMIT + 100 * PROBE_SECONDS, LIMIT) == []


def test_an_answer_that_took_too_long_heals_nobody_and_the_question_is_repeated(scene: RegistryDriver) -> None:
    link = make_sick(scene)
    due = LIMIT + PROBE_SECONDS
    scene.passes(due, LIMIT)
    late = due + OWED_SECONDS + 1
    assert scene.answer(link, probe_id(link), error="missing port", at=late) == []
    assert link.sick
    assert scene.passes(late, LIMIT) == [asked(link)]


def test_the_answer_of_an_agent_that_healed_meanwhile_is_no_orphan(scene: RegistryDriver) -> None:
    link = make_sick(scene)
    scene.passes(LIMIT + PROBE_SECONDS, LIMIT)
    scene.dial(10)
    scene.answer(link, 10, connection_id=1)
    assert scene.answer(link, probe_id(link), error="missing port", at=LIMIT + PROBE_SECONDS + 1) == []


def test_an_agent_that_connects_somewhere_at_our_question_is_told_to_close_it(scene: RegistryDriver) -> None:
    link = make_sick(scene)
    scene.passes(LIMIT + PROBE_SECONDS, LIMIT)
    told = scene.answer(link, probe_id(link), connection_id=9, at=LIMIT + PROBE_SECONDS)
    assert told == [WELL, "a1 <- CLOSE_REQ connection=9"]


def test_nobody_asks_after_an_agent_that_is_gone(scene: RegistryDriver) -> None:
    scene.gone(make_sick(scene))
    assert not scene.registry.needs_time()
    assert scene.passes(LIMIT + PROBE_SECONDS, LIMIT) == []
