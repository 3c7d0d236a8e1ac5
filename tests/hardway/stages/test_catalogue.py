"""All stages: seventeen, in order, explained; the first eight run as a pipeline in both profiles."""

from pathlib import Path

import pytest
from tests.support.hardway_sites import load_site, recording_machines, with_program
from tests.support.hardway_workspace import make_directory, write_machine_configs
from tests.support.made_up_stages import Clock, Lines

from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.explain.entry import TopicKind
from umbilical.hardway.ledger import Ledger
from umbilical.hardway.pipeline import Pipeline, StageEnding
from umbilical.hardway.stages import catalogue
from umbilical.hardway.state import RunState, StageStatus
from umbilical.hardway.undoing import Undoing

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ core@example"
LAST = 8
WORK = "machine-config/work/"


def test_there_are_seventeen_that_build_on_earlier_ones_and_are_titled_alike() -> None:
    stages = catalogue.stages()
    assert [stage.number for stage in stages] == list(range(1, 18))
    assert len({stage.name for stage in stages}) == len(stages)
    for stage in stages:
        assert all(need < stage.number for need in stage.needs), stage.name
        assert stage.title[0].islower(), stage.title
        assert not stage.title.endswith("."), stage.title


def test_every_stage_is_explained_in_full() -> None:
    topics = {topic.name: topic for topic in catalogue.topics() if topic.kind is TopicKind.STAGE}
    assert sorted(topics) == [f"{stage.number:02}" for stage in catalogue.stages()]
    for topic in topics.values():
        assert topic.stage == int(topic.name)
        assert all((topic.what, topic.readers, topic.without, topic.by_hand, topic.installer)), topic.name


def test_inverses_of_all_stages_are_known() -> None:
    known = catalogue.undoers()
    assert {"remove-files", "remove-release", "destroy-machines", "remove-machine", "set-balancer"} <= set(known)


def _run(folder: Path, profile: ClusterProfile) -> tuple[list[StageEnding], RunState]:
    machines = recording_machines(profile)
    if profile is ClusterProfile.OPENSHIFT:
        # Without podman the rendered configs are kept: what containers render is shown with stage 04.
        machines.machine_survey = with_program(machines.machine_survey, "podman", "")
    stages = [stage for stage in catalogue.stages() if stage.number != 1 or profile is ClusterProfile.KUBERNETES]
    ledger = Ledger(folder, Clock())
    pipeline = Pipeline(stages, load_site(folder, machines), ledger, Lines())
    pipeline.run(1, LAST)
    return [result.ending for result in pipeline.results], ledger.state


@pytest.mark.parametrize("profile", list(ClusterProfile), ids=lambda profile: profile.value)
def test_from_an_empty_folder_to_all_artifacts_then_nothing_then_what_changed(
    tmp_path: Path, profile: ClusterProfile
) -> None:
    folder = make_directory(tmp_path / "c", profile.value, access__sshKeys=[KEY])
    if profile is ClusterProfile.OPENSHIFT:
        write_machine_configs(folder)
    endings, state = _run(folder, profile)
    assert set(endings) == {StageEnding.DONE}
    written = {
        str(path.relative_to(folder / "artifacts")) for path in (folder / "artifacts").rglob("*") if path.is_file()
    }
    assert {name for name in written if not name.startswith(WORK)} == set(load_site(folder).assets)

    endings, state = _run(folder, profile)
    assert set(endings) == {StageEnding.SKIPPED}

    make_directory(folder, profile.value, release=False, access__sshKeys=[KEY], nodes__workers__count=2)
    endings, state = _run(folder, profile)
    assert [state.stage(number).status for number in (2, 5, 7, 8)] == [StageStatus.DONE] * 4
    assert endings[-1] is StageEnding.DONE
    assert (folder / "artifacts" / "ignition" / "worker-1.ign").is_file()

    make_directory(folder, profile.value, release=False, access__sshKeys=[KEY])
    _run(folder, profile)
    assert not (folder / "artifacts" / "ignition" / "worker-1.ign").exists()


def test_everything_is_taken_back_to_the_config(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c")
    _run(folder, ClusterProfile.KUBERNETES)
    machines = recording_machines(ClusterProfile.KUBERNETES)
    site = load_site(folder, machines)
    Undoing(catalogue.stages(), catalogue.undoers(), site, Ledger(folder, Clock()), Lines()).destroy()
    assert machines.calls == ["destroy"]
    left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert left == {"cluster.yaml", ".umbilical/events.jsonl", ".umbilical/state.json", ".umbilical/identity.json"}
