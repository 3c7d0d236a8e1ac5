"""Pages have everything that belongs to their stage."""

import pytest

from hardway_docs import WISHES, paper_site
from umbilical.assets.hardway.explain.entry import Entry, EntryKind
from umbilical.hardway import explaining
from umbilical.hardway.lessons.catalogue import LESSONS
from umbilical.hardway.pages import INDEX, Book, file_name
from umbilical.hardway.stages import catalogue

STAGES = catalogue.stages()
PAGES = Book(STAGES, {wish.profile.value: paper_site(wish) for wish in WISHES}).files()
BY_NUMBER = {stage.number: PAGES[file_name(stage)] for stage in STAGES}
PLACED = [entry for entry in explaining.entries() if entry.stage is not None and entry.kind is not EntryKind.STAGE]


@pytest.mark.parametrize("entry", PLACED, ids=lambda entry: f"{entry.kind.value} {entry.name}")
def test_everything_stands_in_the_page_of_its_stage(entry: Entry) -> None:
    assert entry.stage is not None
    page = BY_NUMBER[entry.stage]
    assert entry.name in page
    assert entry.kind is EntryKind.FLAG or f"$ {entry.by_hand}\n" in page


def test_a_page_has_steps_checks_and_known_failures_of_a_stage_on_machines() -> None:
    page = BY_NUMBER[12]
    assert "etcdctl member add master-0" in page
    assert "`voting-master-0` (kubernetes)" in page
    assert "- seen `in sync with leader`: the learner is still catching up" in page
    assert "## Steps in the openshift profile" in page


def test_steps_that_are_the_same_in_both_profiles_stand_there_once() -> None:
    assert BY_NUMBER[9].count("## Steps\n") == 1
    assert "profile\n" not in BY_NUMBER[9]


def test_the_index_leads_to_every_page_and_tells_every_lesson() -> None:
    for stage in STAGES:
        assert f"]({file_name(stage)})" in PAGES[INDEX]
    for lesson in LESSONS:
        assert f"- `{lesson.id}`: " in PAGES[INDEX]


def test_pages_lead_to_their_neighbours() -> None:
    assert "[04 release](04-release.md) · [all](README.md) · [06 kubeconfigs](06-kubeconfigs.md)" in BY_NUMBER[5]
    assert "[16 convergence](16-convergence.md) · [all](README.md)\n" in BY_NUMBER[17]
