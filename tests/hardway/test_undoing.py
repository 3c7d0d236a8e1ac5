"""Undoing stages."""

from pathlib import Path

import pytest
from tests.support.made_up_stages import MadeUpStage, World, make_site, pipeline, undoing
from tests.support.recording_machines import RecordingMachines

from umbilical.fault import HardwayError, Unsafe
from umbilical.hardway.stage import Step, Undo
from umbilical.hardway.state import StageStatus
from umbilical.hardway.undoing import UNDOERS, touched
from umbilical.manifests.tree import Asset


def _built(folder: Path, never: str = "") -> tuple[World, list[MadeUpStage]]:
    world = World()
    stages = [
        MadeUpStage(1, world, ("a", "b")),
        MadeUpStage(2, world, ("c",)),
        MadeUpStage(3, world, ("d",), never=never),
    ]
    pipeline(folder, stages)[0].run(1, 3)
    world.acts.clear()
    return world, stages


def test_a_stage_and_all_later_ones_are_undone_newest_first(tmp_path: Path) -> None:
    world, stages = _built(tmp_path)
    back, ledger, lines = undoing(tmp_path, stages, world)
    assert back.rollback(2) == [3, 2]
    assert world.acts == ["und", "unc"]
    assert set(world.marks) == {"a", "b"}
    assert [ledger.state.stage(number).status for number in (1, 2, 3)] == [
        StageStatus.DONE,
        StageStatus.PENDING,
        StageStatus.PENDING,
    ]
    assert "02 undone" in lines.lines


def test_a_point_of_no_return_refuses_everything_and_undoes_nothing(tmp_path: Path) -> None:
    world, stages = _built(tmp_path, never="d")
    back, ledger, _ = undoing(tmp_path, stages, world)
    with pytest.raises(Unsafe) as refused:
        back.rollback(2)
    assert refused.value.code == "UMB727"
    assert refused.value.why == "d stays"
    assert world.acts == []
    assert ledger.state.stage(2).status is StageStatus.DONE


def test_what_was_half_done_is_undone_too(tmp_path: Path) -> None:
    world = World()

    def stumble(name: str) -> None:
        if name == "b":
            raise HardwayError("UMB729", "what", "why", "next")

    stages = [MadeUpStage(1, world, ("a", "b", "c"), before_act=stumble)]
    with pytest.raises(HardwayError):
        pipeline(tmp_path, stages)[0].run(1, 1)
    world.acts.clear()
    undoing(tmp_path, stages, world)[0].rollback(1)
    assert world.acts == ["unb", "una"]


def test_after_a_rollback_the_same_stages_run_again(tmp_path: Path) -> None:
    world, stages = _built(tmp_path)
    undoing(tmp_path, stages, world)[0].rollback(2)
    again, ledger, _ = pipeline(tmp_path, stages)
    again.run(1, 3)
    assert set(world.marks) == {"a", "b", "c", "d"}
    assert ledger.state.stage(3).status is StageStatus.DONE


def test_an_inverse_that_nobody_knows_is_told(tmp_path: Path) -> None:
    class Strange(MadeUpStage):
        def steps(self, site: object) -> list[Step]:
            return [Step("a", "a", lambda: self.world.mark("a", self.input), Undo("unheard-of"))]

    world = World()
    stages = [Strange(1, world, ("a",))]
    pipeline(tmp_path, stages)[0].run(1, 1)
    with pytest.raises(HardwayError, match="UMB728"):
        undoing(tmp_path, stages, world)[0].rollback(1)


class Building(MadeUpStage):
    def steps(self, site: object) -> list[Step]:
        return [Step("build", "build", lambda: self.world.mark("net", self.input), Undo("destroy-machines"))]


def _cluster(folder: Path, world: World) -> list[MadeUpStage]:
    stages: list[MadeUpStage] = [Building(2, world, ("net",)), MadeUpStage(9, world, ("boot",), never="boot")]
    pipeline(folder, stages)[0].run(2, 9)
    return stages


def test_destroying_removes_machines_once_and_nothing_inside_them(tmp_path: Path) -> None:
    world, machines = World(), RecordingMachines()
    stages = _cluster(tmp_path, world)
    world.acts.clear()
    back, ledger, _ = undoing(tmp_path, stages, world, machines=machines)
    assert back.destroy() == [9, 2]
    assert machines.calls == ["destroy"]
    assert world.acts == []
    assert touched(ledger.state) == []


def test_destroying_twice_is_fine_and_does_nothing(tmp_path: Path) -> None:
    world, machines = World(), RecordingMachines()
    stages = _cluster(tmp_path, world)
    undoing(tmp_path, stages, world)[0].destroy()
    assert undoing(tmp_path, stages, world, machines=machines)[0].destroy() == []
    assert machines.calls == []


def test_destroying_takes_away_what_opened_the_cluster_and_what_was_saved_of_it(tmp_path: Path) -> None:
    world, stages = _built(tmp_path)
    record = tmp_path / ".umbilical"
    for name in ("192.0.2.10.kubeconfig", "pivot-snapshot.db"):
        (record / name).write_bytes(b"secret")
    undoing(tmp_path, stages, world)[0].destroy()
    assert not any((record / name).exists() for name in ("192.0.2.10.kubeconfig", "pivot-snapshot.db"))
    assert (record / "events.jsonl").exists()


def test_destroying_goes_on_past_what_fails_and_tells_it_at_the_end(tmp_path: Path) -> None:
    world, machines = World(), RecordingMachines()
    stages = [MadeUpStage(1, world, ("a",)), *_cluster(tmp_path, world)]
    pipeline(tmp_path, stages)[0].run(1, 1)
    machines.failing["destroy"] = HardwayError("UMB730", "virsh failed", "busy", "again")
    back, ledger, _ = undoing(tmp_path, stages, world, machines=machines)
    with pytest.raises(HardwayError, match="UMB730"):
        back.destroy()
    assert touched(ledger.state) == [2]
    machines.failing.clear()
    undoing(tmp_path, stages, world, machines=machines)[0].destroy()
    assert machines.calls == ["destroy", "destroy"]


def test_files_are_removed_with_their_empty_folders_and_nothing_outside(tmp_path: Path) -> None:
    artifacts = tmp_path / "artifacts"
    (artifacts / "tls" / "bundles").mkdir(parents=True)
    for name in ("tls/a.key", "tls/bundles/b.crt", "keep"):
        (artifacts / name).write_text("x")
    (tmp_path / "cluster.yaml").write_text("x")
    remove = UNDOERS["remove-files"]
    for _ in range(2):
        remove(make_site(tmp_path), {"paths": ["tls/a.key", "tls/bundles/b.crt", "../cluster.yaml"]})
    assert sorted(path.name for path in artifacts.iterdir()) == ["keep"]
    assert (tmp_path / "cluster.yaml").exists()


def test_machines_are_removed_started_and_balanced_as_before(tmp_path: Path) -> None:
    machines = RecordingMachines()
    asset = Asset("infrastructure/haproxy.bootstrap.cfg", b"before", 0o644)
    site = make_site(tmp_path, machines=machines, assets={asset.path: asset})
    UNDOERS["remove-machine"](site, {"node": "master-0"})
    UNDOERS["start-machine"](site, {"node": "bootstrap"})
    UNDOERS["set-balancer"](site, {"artifact": asset.path})
    assert machines.calls == ["remove master-0", "start bootstrap", "set_balancer"]
    assert machines.balancer_config == b"before"
