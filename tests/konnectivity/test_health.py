"""Who is last choice, and how an agent comes back."""

import pytest
from tests.support.switchboard_scene import Scene

from umbilical.konnectivity.health import OWED_SECONDS, PROBE_ADDRESS, PROBE_SECONDS, UNANSWERED_IN_A_ROW, probe_id
from umbilical.konnectivity.routing import AgentLink

LIMIT = 10.0
SICK = f"tell: a1 is sick: {UNANSWERED_IN_A_ROW} dials in a row got no answer"
WELL = "tell: a1 is well: it answers dials again"


@pytest.fixture
def scene() -> Scene:
    return Scene()


def time_out(scene: Scene, count: int, first_id: int = 1, at: float = 0.0) -> list[str]:
    for dial_id in range(first_id, first_id + count):
        scene.dial(dial_id, at=at)
    return [line for line in scene.passes(at + LIMIT, LIMIT) if line.startswith("tell")]


def make_sick(scene: Scene, at: float = 0.0) -> AgentLink:
    """The first agent of the scene, at `at` plus LIMIT."""
    link = scene.agent("a1")
    assert time_out(scene, UNANSWERED_IN_A_ROW, at=at) == [SICK]
    return link


def test_three_dials_in_a_row_without_an_answer_make_an_agent_the_last_choice(scene: Scene) -> None:
    sick = make_sick(scene)
    assert sick.sick
    other = scene.agent("a2")
    scene.tunnel(other, 10, 1)
    assert scene.dial(11).link is other
    scene.gone(other)
    assert scene.dial(12).link is sick


def test_an_answer_between_them_begins_the_count_anew(scene: Scene) -> None:
    link = scene.agent("a1")
    assert time_out(scene, 2) == []
    scene.dial(10)
    scene.answer(link, 10, error="connection refused")  # the endpoint's fault, not the agent's
    assert time_out(scene, 2, first_id=20) == []
    assert not link.sick


def test_it_is_told_once(scene: Scene) -> None:
    make_sick(scene)
    assert time_out(scene, 5, first_id=20) == []


@pytest.mark.parametrize("answer", [{"connection_id": 4}, {"error": "connection refused"}])
def test_an_answer_in_time_heals(scene: Scene, answer: dict[str, object]) -> None:
    link = make_sick(scene)
    scene.dial(10, at=LIMIT)
    told = scene.answer(link, 10, at=LIMIT + 1, **answer)  # type: ignore[arg-type]
    assert told[0] == WELL
    assert not link.sick


def test_a_dial_that_the_agent_closes_is_an_answer_too(scene: Scene) -> None:
    link = make_sick(scene)
    scene.dial(10, at=LIMIT)
    scene.board.agent_cancelled_dial(link, 10)
    assert not link.sick


def test_an_answer_that_comes_too_late_heals_nobody(scene: Scene) -> None:
    """Else an agent that is always late would always be trusted again."""
    link = make_sick(scene)
    scene.answer(link, 1, connection_id=3)
    assert link.sick


def test_a_client_that_leaves_when_an_answer_is_owed_counts_as_a_timeout(scene: Scene) -> None:
    """Where dials have no time limit, nothing else ever would."""
    link = scene.agent("a1")
    for dial_id in range(UNANSWERED_IN_A_ROW):
        told = scene.close(scene.dial(dial_id + 1), at=OWED_SECONDS)
    assert told[-1] == SICK
    assert link.sick


def test_a_client_that_leaves_sooner_proves_nothing(scene: Scene) -> None:
    link = scene.agent("a1")
    for dial_id in range(9):
        scene.close(scene.dial(dial_id + 1), at=OWED_SECONDS - 0.1)
    assert not link.sick


def test_who_took_a_dial_over_is_not_blamed_for_the_time_that_was_left(scene: Scene) -> None:
    first = scene.agent("a0")
    for dial_id in range(1, 6):
        scene.dial(dial_id)
    second = scene.agent("a1")
    scene.gone(first)
    assert len(second.pending) == 5
    assert scene.passes(LIMIT, LIMIT).count("count backend_dial_timeout") == 5
    assert not second.sick


def test_a_new_stream_of_a_sick_agent_starts_well(scene: Scene) -> None:
    make_sick(scene)
    successor = scene.agent("a1")
    assert scene.dial(10).link is successor


# ---------------------------------------------------------------------- our own question


def asked(link: AgentLink) -> str:
    return f"a1 <- DIAL_REQ tcp {PROBE_ADDRESS} dial={probe_id(link)}"


def test_a_sick_agent_is_asked_without_a_client_and_its_answer_heals(scene: Scene) -> None:
    link = make_sick(scene)
    assert scene.board.needs_time()
    due = LIMIT + PROBE_SECONDS
    assert scene.passes(due - 0.1, LIMIT) == []
    assert scene.passes(due, LIMIT) == [asked(link)]
    assert scene.answer(link, probe_id(link), error="missing port in address", at=due + 1) == [WELL]
    assert not scene.board.needs_time()


def test_one_question_is_open_at_a_time_however_long(scene: Scene) -> None:
    link = make_sick(scene)
    assert scene.passes(LIMIT + PROBE_SECONDS, LIMIT) == [asked(link)]
    assert scene.passes(LIMIT + 100 * PROBE_SECONDS, LIMIT) == []


def test_an_answer_that_took_too_long_heals_nobody_and_the_question_is_repeated(scene: Scene) -> None:
    link = make_sick(scene)
    due = LIMIT + PROBE_SECONDS
    scene.passes(due, LIMIT)
    late = due + OWED_SECONDS + 1
    assert scene.answer(link, probe_id(link), error="missing port", at=late) == []
    assert link.sick
    assert scene.passes(late, LIMIT) == [asked(link)]


def test_the_answer_of_an_agent_that_healed_meanwhile_is_no_orphan(scene: Scene) -> None:
    link = make_sick(scene)
    scene.passes(LIMIT + PROBE_SECONDS, LIMIT)
    scene.dial(10)
    scene.answer(link, 10, connection_id=1)
    assert scene.answer(link, probe_id(link), error="missing port", at=LIMIT + PROBE_SECONDS + 1) == []


def test_an_agent_that_connects_somewhere_at_our_question_is_told_to_close_it(scene: Scene) -> None:
    link = make_sick(scene)
    scene.passes(LIMIT + PROBE_SECONDS, LIMIT)
    told = scene.answer(link, probe_id(link), connection_id=9, at=LIMIT + PROBE_SECONDS)
    assert told == [WELL, "a1 <- CLOSE_REQ connection=9"]


def test_nobody_asks_after_an_agent_that_is_gone(scene: Scene) -> None:
    scene.gone(make_sick(scene))
    assert not scene.board.needs_time()
    assert scene.passes(LIMIT + PROBE_SECONDS, LIMIT) == []
