"""From a scenario's name to a story told in a lab that is made for it and taken down afterwards, whatever happens; and
the testbed of a lab that was kept.
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from umbilical.fault import LabError
from umbilical.lab import lab as labs
from umbilical.lab.binaries import KUBERNETES, find
from umbilical.lab.isolation import check_programs
from umbilical.lab.kubelet.node_runtime import check_needs
from umbilical.lab.lab import Lab, UpRequest
from umbilical.lab.scenarios.scenario import Scenario
from umbilical.lab.state import LabDirectory, RunnerKind, read_state
from umbilical.lab.testbed import Testbed
from umbilical.lab.topology import Topology, plan_topology
from umbilical.lab.transcript import Transcript
from umbilical.lab.tunnel_parts import ScenarioOptions


def make_testbed(lab: Lab, options: ScenarioOptions, transcript: Transcript) -> Testbed:
    if options.is_stand_in:
        from umbilical.lab.stand_in_testbed import StandInTestbed

        return StandInTestbed(lab, options, transcript)
    from umbilical.lab.kubernetes_testbed import KubernetesTestbed

    return KubernetesTestbed(lab, options, transcript)


def load_testbed(lab: Lab, transcript: Transcript) -> Testbed:
    """Take up the testbed of a kept lab. Raises LabError: nothing was played in it yet."""
    try:
        content = json.loads(lab.directory.testbed_file.read_bytes())
    except FileNotFoundError:
        why = "there are networks and nodes, and nothing was played on them"
        raise LabError("UMB851", "there is no tunnel in this lab", why, "umbilical lab run --keep NAME") from None
    testbed = make_testbed(lab, ScenarioOptions.from_json(content["cast"]), transcript)
    testbed.restore(content["tunnel"])
    return testbed


KUBELET_PROGRAMS: Final = ("kubelet",)


@dataclass(frozen=True)
class ScenarioRun:
    """How a scenario is told here."""

    scenario: Scenario
    runner: RunnerKind
    stand_in: bool = False
    keep: bool = False
    """Stop before the cut, and leave the lab up."""
    directory: Path | None = None
    """Where a lab is up already, or is to be. None: a scratch directory, gone with the lab."""
    name: str = ""
    """Of the lab; its directory's, if none is given."""
    breakage: str | None = None
    bin_dir: Path | None = None

    @property
    def options(self) -> ScenarioOptions:
        return replace(self.scenario.options, is_stand_in=self.stand_in)


def run_scenario(run: ScenarioRun, transcript: Transcript) -> Lab | None:
    """Tell the story: in the lab that is up in the given directory, or in one made for it.

    A lab that was there stays, one that was made goes, unless it is to be kept; what stays is returned.

    Raises LabError: the lab cannot be, or a step did not come out as told.
    """
    _check(run)
    found = _stage(run)
    if found is not None:
        _play(run, transcript, found)
        return found
    programs = binaries(run)
    folder = run.directory or Path(tempfile.mkdtemp(prefix="umbilical-lab-"))
    # Nothing is left of a lab that did not come up; and what else lies there is not ours to remove.
    lab = _bring_up(run, transcript, folder, programs)
    try:
        _play(run, transcript, lab)
    except Exception:
        # Somebody who keeps a lab wants to see why a step failed.
        if not run.keep:
            lab.down()
        raise
    except BaseException:
        lab.down()
        raise
    if run.keep:
        return lab
    lab.down()
    return None


def binaries(run: ScenarioRun) -> Mapping[str, Path]:
    """Find what this scenario runs. Raises LabError: something is missing."""
    found = find(_programs(run), run.bin_dir)
    if run.runner is RunnerKind.KUBELET:
        check_needs(found)
    return found


def _programs(run: ScenarioRun) -> tuple[str, ...]:
    if run.stand_in:
        return ()
    kubelet = KUBELET_PROGRAMS if run.runner is RunnerKind.KUBELET else ()
    return (*KUBERNETES, *kubelet, *run.scenario.programs)


def _bring_up(run: ScenarioRun, transcript: Transcript, folder: Path, programs: Mapping[str, Path]) -> Lab:
    scenario = run.scenario
    topology = _plan(scenario)
    request = UpRequest(
        directory=folder,
        name=run.name or folder.name,
        topology=topology,
        runner=run.runner,
        binaries=programs,
        with_parent=not run.keep,
    )
    with transcript.step(f"{len(topology.nodes)} nodes and their networks"):
        lab = labs.up(request)
        # Not the rest of a management network: it would look as if it had the pods that the tunnel leads to.
        transcript.shows(nodes=tuple(node.name for node in (topology.bootstrap, *topology.members)))
    return lab


def _plan(scenario: Scenario) -> Topology:
    if scenario.plan is not None:
        return scenario.plan()
    return plan_topology(masters=scenario.masters, workers=scenario.workers, family=scenario.family)


def _play(run: ScenarioRun, transcript: Transcript, lab: Lab) -> None:
    testbed = make_testbed(lab, run.options, transcript)
    if run.breakage is None:
        run.scenario.run(testbed)
        if run.scenario.end is not None and not run.keep:
            run.scenario.end(testbed)
    else:
        from umbilical.lab.breakages.repair import run_breakage

        run_breakage(testbed, run.breakage)


def _stage(run: ScenarioRun) -> Lab | None:
    """Find the lab that is up in the given directory, with nothing played in it yet."""
    if run.directory is None:
        return None
    state = read_state(LabDirectory(run.directory))
    if state is None or not state.is_alive():
        return None
    lab = Lab.open(run.directory)
    if lab.directory.testbed_file.exists():
        why = "a scenario was told in it already, and what that left is in the way"
        remedy = f"umbilical lab down --dir {lab.directory.path}, or another --name"
        raise LabError("UMB854", f"the lab {state.name} is taken", why, remedy)
    if state.topology.family is not run.scenario.family or state.runner is not run.runner:
        why = f"it has {state.topology.family.value} and the runner {state.runner.value}"
        raise LabError("UMB854", f"the lab {state.name} does not fit", why, "umbilical lab down, then run this again")
    if run.scenario.plan is not None and state.topology != run.scenario.plan():
        why = f"scenario {run.scenario.name} needs networks of its own"
        raise LabError("UMB854", f"the lab {state.name} does not fit", why, "umbilical lab down, then run this again")
    missing = [name for name in _programs(run) if name not in state.binaries]
    if missing:
        why = f"its nodes were made without {', '.join(missing)}"
        raise LabError("UMB854", f"the lab {state.name} does not fit", why, "umbilical lab down, then run this again")
    # Nodes of a bare lab run pods without an API; the story begins before that.
    for process in lab.processes():
        if process.exit_code is None:
            lab.stop(process.node, process.name)
    return lab


def _check(run: ScenarioRun) -> None:
    scenario = run.scenario
    if run.runner not in scenario.runners:
        names = " or ".join(kind.value for kind in scenario.runners)
        why = f"it needs the runner {names}"
        remedy = f"umbilical lab run {scenario.name} --runner {scenario.runners[0].value}"
        raise LabError("UMB853", f"scenario {scenario.name} cannot be told this way", why, remedy)
    if run.stand_in and not scenario.has_stand_in:
        why = "it shows what the real kube-apiserver does, and nothing can stand in for that"
        raise LabError(
            "UMB853", f"scenario {scenario.name} cannot be told this way", why, "make peers GROUP=kubernetes"
        )
    check_programs(scenario.system_programs, f"scenario {scenario.name}")
