"""From a scenario's name to a story told in a lab that is made for it and taken down afterwards, whatever happens."""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from umbilical.lab import lab as labs
from umbilical.lab.binaries import KUBERNETES, find
from umbilical.lab.cast import Cast
from umbilical.lab.errors import LabError
from umbilical.lab.lab import Lab, UpRequest
from umbilical.lab.runner import RunnerKind
from umbilical.lab.scenarios.scenario import Scenario
from umbilical.lab.scenes import make_scene
from umbilical.lab.story import Story
from umbilical.lab.topology import plan_topology

KUBELET_PROGRAMS: Final = ("kubelet",)


@dataclass(frozen=True)
class Rehearsal:
    """How a scenario is told here."""

    scenario: Scenario
    runner: RunnerKind
    stand_in: bool = False
    keep: bool = False
    directory: Path | None = None
    """None: a scratch directory, gone with the lab."""
    fault: str | None = None
    bin_dir: Path | None = None

    @property
    def cast(self) -> Cast:
        return replace(self.scenario.cast, is_stand_in=self.stand_in)


def rehearse(rehearsal: Rehearsal, story: Story) -> Lab | None:
    """Bring a lab up, tell the story, take the lab down; with `keep` it stays and is returned.

    Raises:
        LabError: the lab cannot be, or a step did not come out as told.
    """
    _check(rehearsal)
    programs = binaries(rehearsal)
    folder = rehearsal.directory or Path(tempfile.mkdtemp(prefix="umbilical-lab-"))
    try:
        lab = _raise_curtain(rehearsal, story, folder, programs)
    finally:
        if not rehearsal.keep:
            labs.down(folder)
            if rehearsal.directory is None:
                shutil.rmtree(folder, ignore_errors=True)
    return lab if rehearsal.keep else None


def binaries(rehearsal: Rehearsal) -> Mapping[str, Path]:
    """Find what this scenario runs.

    Raises:
        LabError: something is missing.
    """
    if rehearsal.stand_in:
        return {}
    kubelet = KUBELET_PROGRAMS if rehearsal.runner is RunnerKind.KUBELET else ()
    return find((*KUBERNETES, *kubelet, *rehearsal.scenario.programs), rehearsal.bin_dir)


def _raise_curtain(rehearsal: Rehearsal, story: Story, folder: Path, programs: Mapping[str, Path]) -> Lab:
    scenario = rehearsal.scenario
    topology = plan_topology(masters=scenario.masters, workers=scenario.workers, family=scenario.family)
    request = UpRequest(
        directory=folder,
        name=folder.name,
        topology=topology,
        runner=rehearsal.runner,
        binaries=programs,
        with_parent=not rehearsal.keep,
    )
    with story.step(f"{len(topology.nodes)} nodes and their networks"):
        lab = labs.up(request)
        story.shows(nodes=tuple(node.name for node in topology.nodes))
    scene = make_scene(lab, rehearsal.cast, story)
    if rehearsal.fault is None:
        scenario.tell(scene)
    else:
        from umbilical.lab.faults.telling import tell_fault

        tell_fault(scene, rehearsal.fault)
    return lab


def _check(rehearsal: Rehearsal) -> None:
    scenario = rehearsal.scenario
    if rehearsal.runner not in scenario.runners:
        names = " or ".join(kind.value for kind in scenario.runners)
        why = f"it needs the runner {names}"
        remedy = f"umbilical lab run {scenario.name} --runner {scenario.runners[0].value}"
        raise LabError("UMB853", f"scenario {scenario.name} cannot be told this way", why, remedy)
    if rehearsal.stand_in and not scenario.has_stand_in:
        why = "it shows what the real kube-apiserver does, and nothing can stand in for that"
        raise LabError(
            "UMB853", f"scenario {scenario.name} cannot be told this way", why, "make peers GROUP=kubernetes"
        )
