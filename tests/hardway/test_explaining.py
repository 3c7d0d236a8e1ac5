"""Every stage, condition and file of the record has an explanation, and pages are complete."""

from collections.abc import Sequence

import pytest

from hardway_pages import INDEX, Book, file_name
from umbilical.cli.stage.cluster import example_sites
from umbilical.hardway import explaining
from umbilical.hardway.explain import library, lookup
from umbilical.hardway.explain.entry import Explanation, ExplanationKind
from umbilical.hardway.lessons.catalogue import LESSONS
from umbilical.hardway.stages import catalogue

ENTRIES = explaining.entries()
SITES = example_sites()
STAGES = catalogue.stages()
PAGES = Book(STAGES, SITES).files()
BY_NUMBER = {stage.number: PAGES[file_name(stage)] for stage in STAGES}


def test_a_stage_is_found_by_number_and_by_name() -> None:
    for stage in STAGES:
        for asked in (str(stage.number), f"{stage.number:02}", f"stage {stage.number}"):
            assert [entry.name for entry in lookup.find(ENTRIES, asked)] == [f"{stage.number:02}"]
        assert f"{stage.number:02}" in [entry.name for entry in lookup.find(ENTRIES, stage.name)]


def test_every_condition_of_the_pivot_is_explained() -> None:
    for number in range(1, 9):
        (found,) = lookup.find(ENTRIES, f"P{number}")
        assert found.kind is ExplanationKind.CONDITION
        assert all((found.by_hand, found.fix)), number


@pytest.mark.parametrize("profile", SITES)
def test_every_check_that_a_stage_prints_is_explained(profile: str) -> None:
    everything = [*ENTRIES, *explaining.checks(SITES.values())]
    printed = {check.id for stage in STAGES for check in stage.checks(SITES[profile])} - {"INFRA-inspection"}
    assert len(printed) > 60
    assert [name for name in sorted(printed) if not _rules(everything, name)] == []


def _rules(everything: Sequence[Explanation], name: str) -> list[Explanation]:
    kinds = (ExplanationKind.RULE, ExplanationKind.CHECK, ExplanationKind.CONDITION)
    return [one for one in lookup.find(everything, name) if one.kind in kinds]


def test_a_check_of_a_node_is_found_by_any_node_and_one_of_the_infrastructure_by_any_name() -> None:
    checks = explaining.checks(SITES.values())
    (installed,) = lookup.find(checks, "installed-worker-3")
    assert (installed.name, installed.what) == ("installed-NODE", "NODE runs from its Ignition config.")
    assert installed.stage == 9
    assert [one.name for one in lookup.find(checks, "INFRA-vip-api")] == ["INFRA-*"]
    (rendered,) = lookup.find(checks, "rel-02")
    assert rendered.by_hand == "umbilical stage status 04 --dir DIR"
    assert "render.sh" in rendered.fix


def test_the_record_is_explained_by_path() -> None:
    (found,) = lookup.find(ENTRIES, "demo/.umbilical/state.json")
    assert "undo every side effect" in found.what


def test_nothing_of_the_artifacts_is_left_out() -> None:
    assert set(library.entries()) < set(ENTRIES)


def test_everything_stands_in_the_page_of_its_stage() -> None:
    placed = [one for one in ENTRIES if one.kind is not ExplanationKind.STAGE and one.stage is not None]
    assert len(placed) > 300
    assert [(one.kind, one.name) for one in placed if one.name not in BY_NUMBER[one.stage or 0]] == []
    by_hand = [one for one in placed if one.kind is not ExplanationKind.FLAG]
    assert [one.name for one in by_hand if f"$ {one.by_hand}\n" not in BY_NUMBER[one.stage or 0]] == []


def test_a_page_has_steps_checks_and_known_failures_of_a_stage_on_machines() -> None:
    page = BY_NUMBER[12]
    assert "etcdctl member add master-0" in page
    assert "`voting-master-0` (kubernetes)" in page
    assert "- `in sync with leader`: the learner is still catching up" in page
    assert "## Steps in the openshift profile" in page
    assert "bash artifacts/machine-config/render.sh\n" in BY_NUMBER[4].partition("## Steps in")[2]


def test_steps_that_are_the_same_in_both_profiles_stand_there_once() -> None:
    assert BY_NUMBER[3].count("## Steps\n") == 1
    assert "profile\n" not in BY_NUMBER[3]


def test_the_index_leads_to_every_page_and_tells_every_lesson() -> None:
    for stage in STAGES:
        assert f"]({file_name(stage)})" in PAGES[INDEX]
    for lesson in LESSONS:
        assert f"- `{lesson.id}`: " in PAGES[INDEX]


def test_pages_lead_to_their_neighbours() -> None:
    assert "[04 release](04-release.md) · [all](README.md) · [06 kubeconfigs](06-kubeconfigs.md)" in BY_NUMBER[5]
    assert "[16 convergence](16-convergence.md) · [all](README.md)\n" in BY_NUMBER[17]
