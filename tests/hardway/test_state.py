"""The state: the sum of all events, and its form on disk."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.hardway.errors import HardwayError
from umbilical.hardway.journal import Event, Kind
from umbilical.hardway.stage import Undo
from umbilical.hardway.state import State, Status, read_state

_FAILURE = {"code": "UMB725", "what": "a", "why": "b", "next": "c"}


def _events(*happened: tuple[Kind, dict[str, object]]) -> list[Event]:
    return [Event(index + 1, f"t{index}", kind.value, values) for index, (kind, values) in enumerate(happened)]


def _sum(*happened: tuple[Kind, dict[str, object]]) -> State:
    return State().add_all(_events(*happened))


_LIFE = (
    (Kind.STAGE_BEGAN, {"stage": 2, "inputs": {"infrastructure": "abc"}}),
    (Kind.STEP_BEGAN, {"stage": 2, "title": "x", "command": "y", "undo": {"name": "destroy-machines", "values": {}}}),
    (Kind.STEP_ENDED, {"stage": 2, "title": "x"}),
    (Kind.NOTED, {"stage": 2, "name": "pid", "value": 7}),
    (Kind.STAGE_DONE, {"stage": 2, "outputs": {"f": "h"}, "checks": [{"id": "A"}], "seconds": 1.5}),
)


def test_a_stage_that_was_never_begun_is_pending() -> None:
    assert State().stage(5).status is Status.PENDING


def test_a_whole_life_adds_up() -> None:
    record = _sum(*_LIFE).stage(2)
    assert record.status is Status.DONE
    assert (record.inputs, record.outputs, record.seconds) == ({"infrastructure": "abc"}, {"f": "h"}, 1.5)
    assert [one.undo for one in record.undos] == [Undo("destroy-machines")]
    assert (record.began, record.ended) == ("t0", "t4")


def test_events_that_are_in_it_already_are_not_added_again() -> None:
    state = _sum(*_LIFE)
    assert state.add_all(_events(*_LIFE)) == state


def test_a_repeated_step_has_its_inverse_once() -> None:
    state = _sum(*_LIFE[:2], *_LIFE[:2])
    assert len(state.stage(2).undos) == 1
    assert state.stage(2).undos[0].number == 2


def test_a_failure_is_forgotten_when_the_stage_is_begun_again() -> None:
    failed = (Kind.STAGE_FAILED, {"stage": 2, "failure": _FAILURE, "checks": []})
    state = _sum(_LIFE[0], failed)
    assert state.stage(2).failure == _FAILURE
    assert _sum(_LIFE[0], failed, _LIFE[0]).stage(2).failure is None


def test_what_is_undone_is_pending_again_and_its_notes_are_gone() -> None:
    state = _sum(*_LIFE, (Kind.UNDO_ENDED, {"stage": 2, "undo": 2}), (Kind.STAGE_UNDONE, {"stage": 2}))
    assert state.stage(2).status is Status.PENDING
    assert state.stage(2).undos == ()
    assert state.stage(2).seconds == 1.5
    assert state.notes == {}


def test_a_point_of_no_return_says_why() -> None:
    undo = {"name": "never", "values": {"why": "the member is gone"}}
    state = _sum(_LIFE[0], (Kind.STEP_BEGAN, {"stage": 2, "title": "x", "command": "", "undo": undo}))
    assert state.stage(2).no_return == "the member is gone"
    assert _sum(*_LIFE).stage(2).no_return is None


def test_events_of_a_later_release_only_count() -> None:
    state = State().add(Event(9, "t", "stage-admired", {"stage": 2}))
    assert state == State(number=9)


def test_it_comes_back_from_disk_as_it_was() -> None:
    state = _sum(*_LIFE, (Kind.STAGE_FAILED, {"stage": 3, "failure": _FAILURE}))
    assert read_state(state.to_json()) == state
    assert json.loads(state.to_json())["stages"]["02"]["status"] == "done"


def test_another_format_is_refused() -> None:
    content = json.loads(State().to_json())
    content["format"] = 2
    with pytest.raises(HardwayError) as told:
        read_state(json.dumps(content).encode())
    assert told.value.code == "UMB722"
    assert "format 2" in told.value.why


_KEYS = st.sampled_from(["format", "number", "stages", "notes", "01", "status"])
_VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
)


@given(st.one_of(st.binary(max_size=60), _VALUES.map(lambda value: json.dumps(value).encode())))
def test_whatever_lies_there_is_a_state_or_a_told_fault(content: bytes) -> None:
    try:
        state = read_state(content)
    except HardwayError:
        pass
    else:
        assert read_state(state.to_json()) == state
