"""Stages in order: run, resumed, retried, and verified by their checks."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.made_up_stages import EndingStage, MadeUpStage, World, make_site, pipeline
from tests.support.recording_machines import RecordingMachines

from umbilical.checks.check import Check, Outcome, Verdict, failed, passed, warned
from umbilical.fault import HardwayError, StageTimeout
from umbilical.hardway import ledger as ledgers
from umbilical.hardway import stage as judging
from umbilical.hardway.pipeline import StageEnding
from umbilical.hardway.site import Site
from umbilical.hardway.stage import ChecksFailed, Stage, Step
from umbilical.hardway.state import StageStatus


def _raise(error: Exception) -> Callable[[Any], Any]:
    def act(of: object) -> None:
        raise error

    return act


def _stages(world: World) -> list[MadeUpStage]:
    return [
        MadeUpStage(1, world, ("a",)),
        MadeUpStage(2, world, ("b", "c"), needs=(1,)),
        MadeUpStage(3, world, ("d",)),
        MadeUpStage(4, world, ("e",), needs=(2,)),
    ]


def test_a_run_does_every_step_once_and_all_stages_are_done(tmp_path: Path) -> None:
    world = World()
    running, ledger, lines = pipeline(tmp_path, _stages(world))
    running.run(1, 4)
    assert world.acts == ["a", "b", "c", "d", "e"]
    assert [ledger.state.stage(number).status for number in range(1, 5)] == [StageStatus.DONE] * 4
    assert lines.lines[:3] == ["01 leave the marks of 1", "step leave a: touch a", "01 done"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """All four stages have been run in it."""
    made = World()
    pipeline(tmp_path, _stages(made))[0].run(1, 4)
    return made


def test_unchanged_stages_whose_checks_pass_are_skipped(tmp_path: Path, world: World) -> None:
    again, _, lines = pipeline(tmp_path, _stages(world))
    again.run(1, 4)
    assert world.acts == ["a", "b", "c", "d", "e"]
    assert [result.ending for result in again.results] == [StageEnding.SKIPPED] * 4
    assert "01 skipped" in lines.lines


def test_a_stage_whose_check_fails_now_is_run_again(tmp_path: Path, world: World) -> None:
    del world.marks["c"]
    pipeline(tmp_path, _stages(world))[0].run(1, 4)
    assert world.acts[5:] == ["b", "c"]


def test_a_changed_input_makes_the_stage_and_all_that_builds_on_it_stale(tmp_path: Path, world: World) -> None:
    changed = _stages(world)
    changed[0].input = "two"
    again, ledger, _ = pipeline(tmp_path, changed)
    again.run(1, 1)
    statuses = [ledger.state.stage(number).status for number in range(1, 5)]
    assert statuses == [StageStatus.DONE, StageStatus.STALE, StageStatus.DONE, StageStatus.STALE]
    assert ledger.state.stage(2).because == "stage 01 is stale"


def test_what_is_stale_is_run_again_and_the_rest_is_not(tmp_path: Path, world: World) -> None:
    changed = _stages(world)
    changed[1].input = "two"
    again, ledger, _ = pipeline(tmp_path, changed)
    again.run(1, 4)
    assert world.acts[5:] == ["b", "c", "e"]
    assert all(ledger.state.stage(number).status is StageStatus.DONE for number in range(1, 5))


def test_a_stage_does_not_begin_before_what_it_builds_on_is_done(tmp_path: Path) -> None:
    world = World()
    running, _, _ = pipeline(tmp_path, _stages(world))
    with pytest.raises(HardwayError) as refused:
        running.run(2, 2)
    assert refused.value.code == "UMB724"
    assert refused.value.remedy == "umbilical stage run 1..2"
    assert world.acts == []


def test_steps_that_end_without_their_effect_fail_by_the_first_check(tmp_path: Path) -> None:
    world = World()

    def vanish(name: str) -> None:
        world.marks.clear()

    stages = _stages(world)
    stages[1].before_act = vanish
    running, ledger, _ = pipeline(tmp_path, stages)
    with pytest.raises(ChecksFailed) as failed:
        running.run(1, 4)
    assert failed.value.code == "UMB723"
    assert "MARK-b" in failed.value.what
    assert (failed.value.why, failed.value.remedy) == ("b is missing", "touch b")
    record = ledger.state.stage(2)
    assert record.status is StageStatus.FAILED
    assert record.failure is not None
    assert record.failure["code"] == "UMB723"
    assert [check["outcome"] for check in record.checks] == ["failed", "passed"]
    assert ledger.state.stage(3).status is StageStatus.PENDING


def test_a_fault_of_a_step_is_kept_in_the_record_and_told_on(tmp_path: Path) -> None:
    stages = _stages(World())
    stages[2].before_act = _raise(StageTimeout("UMB725", "timed out", "after 3 s: nothing", "wait longer"))
    running, _, _ = pipeline(tmp_path, stages)
    with pytest.raises(StageTimeout):
        running.run(1, 4)
    failure = ledgers.read_record(tmp_path).stage(3).failure
    assert failure == {"code": "UMB725", "what": "timed out", "why": "after 3 s: nothing", "next": "wait longer"}
    assert running.results[-1].ending is StageEnding.FAILED


def test_a_fault_of_our_own_is_recorded_too(tmp_path: Path) -> None:
    stages = _stages(World())
    stages[0].before_act = _raise(ZeroDivisionError("by nought"))
    running, ledger, _ = pipeline(tmp_path, stages)
    with pytest.raises(ZeroDivisionError):
        running.run(1, 1)
    failure = ledger.state.stage(1).failure
    assert failure is not None
    assert failure["why"] == "ZeroDivisionError: by nought"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_end_leaves_a_stage_that_is_resumed(tmp_path: Path, number: signal.Signals) -> None:
    world = World()
    stages = _stages(world)

    def ask_to_end(name: str) -> None:
        if name == "c":
            os.kill(os.getpid(), number)

    stages[1].before_act = ask_to_end
    running, _, _ = pipeline(tmp_path, stages)
    with pytest.raises(KeyboardInterrupt):
        running.run(1, 4)
    assert ledgers.read_record(tmp_path).stage(2).status is StageStatus.INTERRUPTED
    again, ledger, _ = pipeline(tmp_path, _stages(world))
    again.run(1, 4)
    assert ledger.state.stage(4).status is StageStatus.DONE
    assert set(world.marks) == {"a", "b", "c", "d", "e"}


def test_a_done_stage_that_is_only_looked_at_stays_done_when_interrupted(tmp_path: Path) -> None:
    class Interrupting(RecordingMachines):
        def enter(self) -> None:
            raise KeyboardInterrupt

    stage = MadeUpStage(9, World(), ("x",))
    pipeline(tmp_path, [stage])[0].run(9, 9)
    again, ledger, _ = pipeline(tmp_path, [stage], machines=Interrupting())
    with pytest.raises(KeyboardInterrupt):
        again.run(9, 9)
    assert ledger.state.stage(9).status is StageStatus.DONE


def test_each_step_is_shown_before_it_is_done_and_may_be_refused(tmp_path: Path) -> None:
    world = World()
    shown: list[str] = []

    def ask(stage: Stage, step: Step) -> bool:
        shown.append(step.command)
        return step.command != "touch c"

    running, ledger, _ = pipeline(tmp_path, _stages(world), ask)
    with pytest.raises(KeyboardInterrupt):
        running.run(1, 4)
    assert shown == ["touch a", "touch b", "touch c"]
    assert world.acts == ["a", "b"]
    assert ledger.state.stage(2).status is StageStatus.INTERRUPTED


def test_the_inverse_is_on_disk_before_a_step_is_done(tmp_path: Path) -> None:
    world = World()
    seen: list[str] = []

    def probe(name: str) -> None:
        seen.append(ledgers.read_record(tmp_path).stage(1).undos[-1].undo.values["name"])

    pipeline(tmp_path, [MadeUpStage(1, world, ("a", "b"), before_act=probe)])[0].run(1, 1)
    assert seen == ["a", "b"]


def test_force_does_steps_of_a_done_stage_again(tmp_path: Path, world: World) -> None:
    pipeline(tmp_path, _stages(world))[0].run(3, 3, force=True)
    assert world.acts[5:] == ["d"]


@pytest.mark.parametrize("force", [False, True])
def test_a_superseded_stage_is_not_asked_any_more_nor_done_again_by_force(tmp_path: Path, force: bool) -> None:
    world = World()
    stages = [EndingStage(1, world, ("a",), ends_with=2), MadeUpStage(2, world, ("b",), needs=(1,), never="b")]
    pipeline(tmp_path, stages)[0].run(1, 2)
    world.marks.pop("a")
    again, ledger, _ = pipeline(tmp_path, stages)
    again.run(1, 1, force=force)
    assert world.acts == ["a", "b"]
    assert [(one.ending, one.reason) for one in again.results] == [(StageEnding.SKIPPED, "stage 02 superseded it")]
    assert ledger.state.stage(1).status is StageStatus.DONE


def test_a_stage_is_superseded_from_the_point_of_no_return_on(tmp_path: Path) -> None:
    world, stumble = World(), _raise(HardwayError("UMB729", "what", "why", "next"))
    stages = [
        EndingStage(1, world, ("a",), ends_with=2),
        MadeUpStage(2, world, ("b", "c"), never="b", before_act=stumble),
    ]
    with pytest.raises(HardwayError):
        pipeline(tmp_path, stages)[0].run(1, 2)
    world.marks.pop("a")
    stages[1].before_act = lambda name: None
    pipeline(tmp_path, stages)[0].run(1, 2)
    assert world.acts == ["a", "b", "c"]


def test_notes_are_kept_for_later_runs_with_their_stage(tmp_path: Path) -> None:
    stage = MadeUpStage(1, World(), ("a",))
    running, _, _ = pipeline(tmp_path, [stage])
    stage.before_act = lambda name: running._site.notes.update(member={"id": 7})
    running.run(1, 1)
    kept = ledgers.read_record(tmp_path).notes["member"]
    assert (kept.stage, kept.value) == (1, {"id": 7})


def test_machines_are_entered_from_the_ninth_stage_on(tmp_path: Path) -> None:
    world, machines = World(), RecordingMachines()
    stages = [MadeUpStage(8, world, ("a",)), MadeUpStage(9, world, ("b",))]
    pipeline(tmp_path, stages[:1], machines=machines)[0].run(8, 8)
    assert machines.calls == []
    pipeline(tmp_path, stages, machines=machines)[0].run(9, 9)
    assert set(machines.calls) == {"enter"}


class Asked(MadeUpStage):
    judges: tuple[Callable[[Site], Verdict], ...] = ()

    def checks(self, site: Site) -> list[Check[Site]]:
        return [Check(f"C-{index}", f"claim {index}", "why", "fix", judge) for index, judge in enumerate(self.judges)]


def _stage(*judges: Callable[[Site], Verdict]) -> Asked:
    stage = Asked(4, World())
    stage.judges = judges
    return stage


def test_every_check_is_asked_whatever_the_others_say(tmp_path: Path) -> None:
    refused = HardwayError("UMB740", "the API does not answer", "connection refused", "wait")
    stage = _stage(_raise(refused), lambda site: passed(), _raise(OSError("no route")), _raise(TimeoutError()))
    found = judging.findings(stage, make_site(tmp_path))
    assert [one.outcome for one in found] == [Outcome.FAILED, Outcome.PASSED, Outcome.FAILED, Outcome.FAILED]
    assert found[0].evidence == "UMB740 the API does not answer: connection refused"
    assert "no route" in found[2].evidence
    assert "TimeoutError" in found[3].evidence


def test_a_fault_of_our_own_is_not_taken_for_a_finding(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        judging.findings(_stage(_raise(KeyError("x"))), make_site(tmp_path))


def test_a_stage_ends_when_nothing_failed_though_something_warned(tmp_path: Path) -> None:
    stage = _stage(lambda site: passed(), lambda site: warned("hm"))
    found = judging.findings(stage, make_site(tmp_path))
    judging.refuse_failed(stage, found)
    assert [one.outcome for one in found] == [Outcome.PASSED, Outcome.WARNED]


def test_the_first_failed_check_is_told_with_its_fix_and_how_many_more(tmp_path: Path) -> None:
    stage = _stage(lambda site: passed(), lambda site: failed("saw this"), lambda site: failed("and that"))
    with pytest.raises(judging.ChecksFailed) as told:
        judging.refuse_failed(stage, judging.findings(stage, make_site(tmp_path)))
    assert str(told.value).splitlines() == [
        "UMB723 stage 04 made-up-4: check C-1 failed: claim 1 (and 1 more)",
        "  why: saw this",
        "  next: fix",
    ]
    assert len(told.value.findings) == 3
