"""Which stages are meant."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.made_up_stages import MadeUpStage, World

from umbilical.cli.stage_range import StageRange, bounds, find_stage

STAGES = [MadeUpStage(number, World()) for number in range(1, 18)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("5..8", (5, 8)), ("05..08", (5, 8)), ("5..", (5, 17)), ("..8", (1, 8)), ("8", (1, 8)), ("1..1", (1, 1))],
)
def test_what_is_open_is_filled_in(text: str, wanted: tuple[int, int]) -> None:
    assert bounds(StageRange().convert(text, None, None), STAGES) == wanted


def test_nothing_means_all() -> None:
    assert bounds(None, STAGES) == (1, 17)


@pytest.mark.parametrize("text", ["8..5", "0..3", "18", "5..99"])
def test_stages_that_there_are_not_are_refused(text: str) -> None:
    with pytest.raises(click.UsageError):
        bounds(StageRange().convert(text, None, None), STAGES)


@given(st.text(max_size=8))
def test_whatever_is_written_is_a_range_or_wrong_usage(text: str) -> None:
    try:
        first, last = StageRange().convert(text, None, None)
    except click.UsageError:
        return
    assert first is not None or last is not None


def test_a_stage_is_found_by_number_and_by_name() -> None:
    assert find_stage("05", STAGES).number == find_stage("5", STAGES).number == find_stage("made-up-5", STAGES).number
    with pytest.raises(click.UsageError, match="there is no stage 99"):
        find_stage("99", STAGES)
