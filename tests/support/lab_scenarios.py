"""Run a scenario in a lab of its own, and compare the machine before and after."""

from pathlib import Path
from typing import Final

from tests.support.labs import control_groups_of, machine_picture

from umbilical.lab.scenario_run import ScenarioRun, run_scenario
from umbilical.lab.scenarios import scenario
from umbilical.lab.state import RunnerKind
from umbilical.lab.transcript import StepOutcome, Transcript

KUBERNETES: Final = ("etcd", "kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler")
SECONDS: Final = 420
"""Timeout of a scenario on two busy cores; the demo itself takes less than a minute."""


def run(
    name: str,
    folder: Path,
    *,
    runner: RunnerKind = RunnerKind.PROCESS,
    stand_in: bool = False,
    bin_dir: Path | None = None,
    kubernetes_version: str | None = None,
) -> Transcript:
    """Run a scenario and return its transcript; check that every step is done and the machine is unchanged."""
    before = machine_picture()
    transcript = Transcript(name)
    wanted = ScenarioRun(
        scenario.find(name),
        runner,
        stand_in=stand_in,
        directory=folder / "lab",
        bin_dir=bin_dir,
        kubernetes_version=kubernetes_version,
    )
    run_scenario(wanted, transcript)
    assert machine_picture() == before
    assert control_groups_of(folder / "lab") == []
    assert [step.title for step in transcript.steps if step.outcome is not StepOutcome.DONE] == []
    return transcript


def evidence(transcript: Transcript) -> str:
    return "\n".join(line for step in transcript.steps for line in step.evidence)
