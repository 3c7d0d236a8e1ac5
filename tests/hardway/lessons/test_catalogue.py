"""Every lesson: its fault goes in, the doctor names it from what lies on disk, and mending leaves no byte changed."""

from pathlib import Path

import pytest
from tests.support import hardway
from tests.support.hardway_patients import examined, make_patient
from tests.support.hardway_workspace import contents

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.catalogue import RULES
from umbilical.hardway import workspace
from umbilical.hardway.lessons import catalogue, sitting
from umbilical.hardway.lessons.catalogue import LESSONS
from umbilical.hardway.lessons.lesson import Lesson

CASES = [(profile, lesson) for lesson in LESSONS for profile in sorted(lesson.profiles, key=lambda one: one.value)]
FROM_THE_LOG = {
    *("etcd-serving", "apiserver-localhost", "apiserver-bootstrap-address", "bootstrap-kubelet", "httpchk"),
    *("feature-gate", "proxy-client", "kubelet-ca", "path-twice", "etcd-name", "etcd-prefix", "wrong-proxy"),
    *("no-proxy", "infrastructure-status", "agent-port"),
}


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> dict[Profile, Path]:
    return {one: make_patient(tmp_path_factory.mktemp(one.value) / "c", one.value) for one in Profile}


@pytest.mark.parametrize(("profile", "lesson"), CASES, ids=lambda one: getattr(one, "id", getattr(one, "value", "")))
def test_the_doctor_names_a_lesson_and_is_content_when_it_is_mended(
    profile: Profile, lesson: Lesson, patients: dict[Profile, Path]
) -> None:
    folder = patients[profile]
    before = contents(folder)
    sitting.spoil_artifacts(folder, workspace.read_config(folder).cluster, lesson, hardway.NOW)
    first = examined(folder)[0]
    assert first.lesson == lesson.id
    assert first.id in lesson.rules
    under_way = sitting.current(folder)
    assert under_way is not None
    assert under_way.lesson is lesson
    assert set(sitting.mend_artifacts(folder, under_way)) == set(under_way.left)
    assert contents(folder) == before


@pytest.mark.parametrize("profile", Profile)
def test_the_doctor_is_content_with_what_nobody_broke(profile: Profile, patients: dict[Profile, Path]) -> None:
    assert examined(patients[profile]) == []


def test_the_faults_of_the_log_are_among_them() -> None:
    ids = [lesson.id for lesson in LESSONS]
    assert set(ids) >= FROM_THE_LOG
    assert len(set(ids)) == len(ids)


def test_a_lesson_is_recognised_by_rules_that_exist_for_its_profiles() -> None:
    rules = {rule.id: rule for rule in RULES}
    for lesson in LESSONS:
        for profile in lesson.profiles:
            assert any(profile in rules[one].profiles for one in lesson.rules), lesson.id


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.id)
def test_a_story_does_not_tell_the_answer(lesson: Lesson) -> None:
    assert lesson.fault not in lesson.story
    assert lesson.mending not in lesson.story


def test_an_explanation_tells_it() -> None:
    told = {entry.name: entry for entry in catalogue.entries()}
    assert set(told) == {lesson.id for lesson in LESSONS}
    assert "clientAuth" in told["etcd-serving"].without
    assert "With --live" in told["httpchk"].without
