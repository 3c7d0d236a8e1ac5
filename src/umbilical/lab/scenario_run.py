"""Run a scenario in a lab: create the lab, run the steps, remove the lab. Also load the testbed of a kept lab."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from umbilical.fault import LabError
from umbilical.lab import lab as labs
from umbilical.lab.binaries import KUBERNETES, find
from umbilical.lab.isolation import check_programs
from umbilical.lab.kubelet.image_format import read_names
from umbilical.lab.kubelet.node_runtime import check_needs
from umbilical.lab.lab import Lab, UpRequest
from umbilical.lab.scenarios.scenario import Scenario
from umbilical.lab.state import LabDirectory, RunnerKind, read_state
from umbilical.lab.testbed import Testbed
from umbilical.lab.topology import Topology, plan_topology
from umbilical.lab.transcript import Transcript
from umbilical.lab.tunnel_parts import OURS, ScenarioOptions


def make_testbed(lab: Lab, options: ScenarioOptions, transcript: Transcript) -> Testbed:
    if options.is_stand_in:
        from umbilical.lab.stand_in_testbed import StandInTestbed

        return StandInTestbed(lab, options, transcript)
    from umbilical.lab.kubernetes_testbed import KubernetesTestbed

    return KubernetesTestbed(lab, options, transcript)


def load_testbed(lab: Lab, transcript: Transcript) -> Testbed:
    """Load the testbed of a kept lab. Raises LabError: no scenario ran in it."""
    try:
        content = json.loads(lab.directory.testbed_file.read_bytes())
    except FileNotFoundError:
        why = "no scenario ran in it: it has networks and nodes only"
        raise LabError("UMB851", "this lab has no tunnel", why, "umbilical lab run --keep NAME") from None
    testbed = make_testbed(lab, ScenarioOptions.from_json(content["cast"]), transcript)
    testbed.restore(content["tunnel"])
    return testbed


KUBELET_PROGRAMS: Final = ("kubelet",)


@dataclass(frozen=True)
class ScenarioRun:
    """A scenario and how to run it."""

    scenario: Scenario
    runner: RunnerKind
    stand_in: bool = False
    keep: bool = False
    """Skip the scenario's end, and keep the lab and its tunnel."""
    directory: Path | None = None
    """Directory of the lab, existing or new. None: a temporary directory."""
    name: str = ""
    """Name of the lab; default: that of its directory."""
    breakage: str | None = None
    bin_dir: Path | None = None
    kubernetes_version: str | None = None
    """Of the programs that the cache has in several versions; None: the newest."""
    image: Path | None = None
    """Archive of the image that our server and agents run from, instead of the lab's own."""

    def options(self, image: str | None) -> ScenarioOptions:
        """Return the options in a lab whose nodes have this archive. Raises LabError: it was not read (UMB849)."""
        options = replace(self.scenario.options, is_stand_in=self.stand_in)
        if image is None:
            return options
        name = read_names(Path(image))[0]
        server, agent = (name if one == OURS else one for one in (options.server_image, options.agent_image))
        return replace(options, server_image=server, agent_image=agent)


def run_scenario(run: ScenarioRun, transcript: Transcript) -> Lab | None:
    """Run a scenario in the lab that is up in the given directory, or in a new one.

    A lab that existed before stays; a new one is removed unless `keep` is set. Returns the lab if it stays.

    Raises LabError: the lab did not come up, or a step failed.
    """
    _check(run)
    found = _existing_lab(run)
    if found is not None:
        _run_in(run, transcript, found)
        return found
    programs = binaries(run)
    folder = run.directory or Path(tempfile.mkdtemp(prefix="umbilical-lab-"))
    # Outside the `try`: a lab that fails to come up removes itself, and other files there are not ours.
    lab = _bring_up(run, transcript, folder, programs)
    try:
        _run_in(run, transcript, lab)
    except Exception:
        # With --keep the user wants to see why a step failed.
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
    """Find the programs that this scenario runs. Raises LabError: one is missing."""
    found = find(_programs(run), run.bin_dir, run.kubernetes_version)
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
        image=run.image,
        with_parent=not run.keep,
    )
    with transcript.step(f"{len(topology.nodes)} nodes and their networks"):
        lab = labs.up(request)
        # Without the management network's nodes: they run none of the pods that the picture shows.
        transcript.shows(nodes=tuple(node.name for node in (topology.bootstrap, *topology.members)))
    return lab


def _plan(scenario: Scenario) -> Topology:
    if scenario.plan is not None:
        return scenario.plan()
    return plan_topology(masters=scenario.masters, workers=scenario.workers, family=scenario.family)


def _run_in(run: ScenarioRun, transcript: Transcript, lab: Lab) -> None:
    testbed = make_testbed(lab, run.options(lab.state.image), transcript)
    if run.breakage is None:
        run.scenario.run(testbed)
        if run.scenario.end is not None and not run.keep:
            run.scenario.end(testbed)
    else:
        from umbilical.lab.breakages.repair import run_breakage

        run_breakage(testbed, run.breakage)


def _existing_lab(run: ScenarioRun) -> Lab | None:
    """Find the lab that is up in the given directory. Raises LabError: it does not fit this scenario (UMB854)."""
    if run.directory is None:
        return None
    state = read_state(LabDirectory(run.directory))
    if state is None or not state.is_alive():
        return None
    lab = Lab.open(run.directory)
    if lab.directory.testbed_file.exists():
        why = "a scenario already ran in it and left its objects"
        remedy = f"umbilical lab down --dir {lab.directory.path}, or another --name"
        raise LabError("UMB854", f"the lab {state.name} was not used", why, remedy)
    if state.topology.family is not run.scenario.family or state.runner is not run.runner:
        raise _misfit(
            state.name, f"it has the IP family {state.topology.family.value} and the runner {state.runner.value}"
        )
    if run.scenario.plan is not None and state.topology != run.scenario.plan():
        raise _misfit(state.name, f"scenario {run.scenario.name} needs networks of its own")
    if run.image is not None and state.image != os.path.abspath(run.image):
        raise _misfit(state.name, f"its nodes were created without the image {run.image}")
    missing = [name for name in _programs(run) if name not in state.binaries]
    if missing:
        raise _misfit(state.name, f"its nodes were created without {', '.join(missing)}")
    if run.kubernetes_version is not None and _differ(binaries(run), state.binaries):
        raise _misfit(state.name, f"its programs are not those of Kubernetes {run.kubernetes_version}")
    # `lab up` started pod runners without an API; the scenario starts its own.
    for process in lab.processes():
        if process.exit_code is None:
            lab.stop(process.node, process.name)
    return lab


def _differ(wanted: Mapping[str, Path], there: Mapping[str, str]) -> bool:
    return any(os.path.abspath(path) != there[name] for name, path in wanted.items())


def _misfit(name: str, why: str) -> LabError:
    remedy = "umbilical lab down, then run the same command again"
    return LabError("UMB854", f"the lab {name} does not fit this scenario", why, remedy)


def _check(run: ScenarioRun) -> None:
    scenario = run.scenario
    if run.runner not in scenario.runners:
        names = " or ".join(kind.value for kind in scenario.runners)
        why = f"it needs the runner {names}"
        remedy = f"umbilical lab run {scenario.name} --runner {scenario.runners[0].value}"
        raise LabError("UMB853", f"scenario {scenario.name} cannot run with these options", why, remedy)
    if run.stand_in and not scenario.has_stand_in:
        why = "it has no stand-in for kube-apiserver"
        raise LabError(
            "UMB853", f"scenario {scenario.name} cannot run with these options", why, "make peers GROUP=kubernetes"
        )
    _check_image(run)
    check_programs(scenario.system_programs, f"scenario {scenario.name}")


def _check_image(run: ScenarioRun) -> None:
    """Raise LabError: the scenario needs an image, or the runner cannot run it (UMB853); it was not read (UMB849)."""
    name = run.scenario.name
    command = f"umbilical lab run {name} --runner kubelet --image"
    what = f"scenario {name} cannot run with these options"
    if run.scenario.needs_image and run.image is None:
        why = "its proxies are in the image that `make image` builds, and not in that of the lab"
        raise LabError("UMB853", what, why, f"{command} dist/umbilical-VERSION-amd64.oci.tar")
    if run.image is not None and run.runner is not RunnerKind.KUBELET:
        raise LabError("UMB853", what, "only the kubelet runner runs images", f"{command} {run.image}")
    if run.image is not None:
        read_names(run.image)
