"""Every stage, every pivot condition and the files of the record are explained, beside all that artifacts say."""

import pytest

from umbilical.assets.hardway.explain import library, lookup
from umbilical.assets.hardway.explain.entry import EntryKind
from umbilical.hardway import explaining
from umbilical.hardway.stage import Stage
from umbilical.hardway.stages import catalogue

ENTRIES = explaining.entries()


def test_there_are_seventeen_stages_in_order() -> None:
    numbers = [entry.name for entry in ENTRIES if entry.kind is EntryKind.STAGE]
    assert numbers == [f"{number:02}" for number in range(1, 18)]


@pytest.mark.parametrize("stage", catalogue.stages(), ids=lambda stage: stage.name)
def test_a_stage_is_found_by_number_and_by_name(stage: Stage) -> None:
    for asked in (str(stage.number), f"{stage.number:02}", f"stage {stage.number}"):
        assert [entry.name for entry in lookup.find(ENTRIES, asked)] == [f"{stage.number:02}"]
    assert f"{stage.number:02}" in [entry.name for entry in lookup.find(ENTRIES, stage.name)]


@pytest.mark.parametrize("number", range(1, 9))
def test_a_condition_of_the_pivot_is_explained(number: int) -> None:
    (found,) = lookup.find(ENTRIES, f"P{number}")
    assert found.kind is EntryKind.CONDITION
    assert found.by_hand
    assert found.fix


def test_the_record_is_explained_by_path() -> None:
    (found,) = lookup.find(ENTRIES, "demo/.umbilical/state.json")
    assert "inverse" in found.what


def test_nothing_of_the_artifacts_is_left_out() -> None:
    assert set(library.entries()) < set(ENTRIES)
