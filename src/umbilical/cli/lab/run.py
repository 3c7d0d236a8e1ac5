"""`umbilical lab run`: run one scenario, in a new lab or in one that is up.

`lab demo` uses the same functions for the view, the lab, the report and the summary.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from umbilical.cli.lab.options import DIRECTORY, image_option, program_options
from umbilical.cli.terminal import has_colour
from umbilical.fault import LabError

if TYPE_CHECKING:
    from umbilical.lab.lab import Lab
    from umbilical.lab.scenario_run import ScenarioRun
    from umbilical.lab.transcript import Transcript

LAB_FOLDER: Final = "lab"


def run_in_view(scenario_run: "ScenarioRun", title: str, report: Path | None) -> "tuple[Transcript, Lab | None]":
    """Run a scenario and show it; after a failed step the report is still written.

    Raises Fault: the lab did not come up, or a step failed.
    """
    lab: Lab | None = None

    def work(transcript: "Transcript") -> None:
        nonlocal lab
        lab = play(scenario_run, transcript)

    return _run_in_view(work, title, report, is_stand_in=scenario_run.stand_in), lab


def run_on_loopback(title: str, report: Path) -> "Transcript":
    """Run the demo without a lab; an interrupt leaves nothing behind. Raises Fault: a step failed."""
    from umbilical.host.processes import Interrupts
    from umbilical.lab import loopback

    def work(transcript: "Transcript") -> None:
        transcript.not_shown = loopback.NOT_SHOWN
        scratch = tempfile.TemporaryDirectory(prefix="umbilical-")
        with Interrupts() as interrupts, scratch as folder, interrupts.heard():
            loopback.run(transcript, Path(folder))

    return _run_in_view(work, title, report, is_stand_in=True)


def _run_in_view(
    work: Callable[["Transcript"], None], title: str, report: Path | None, *, is_stand_in: bool
) -> "Transcript":
    from umbilical.cli.lab.transcript_view import choose_view
    from umbilical.lab.transcript import Transcript

    transcript = Transcript(title)
    try:
        with choose_view(title, is_stand_in=is_stand_in) as view:
            transcript = Transcript(title, view)
            work(transcript)
    except KeyboardInterrupt:
        click.echo("\ninterrupted: everything is removed")
        raise
    except Exception:
        # Without a single step there is nothing to report.
        if transcript.steps and report is not None:
            click.echo(f"\nreport of the steps so far: {write(transcript, report, is_stand_in=is_stand_in)}\n")
        raise
    return transcript


def play(wanted: "ScenarioRun", transcript: "Transcript") -> "Lab | None":
    """Run a scenario; an interrupt at any moment leaves nothing behind, even with --keep."""
    from umbilical.host.processes import Interrupts
    from umbilical.lab import scenario_run
    from umbilical.lab.lab import down

    with Interrupts() as interrupts:
        scratch = None if wanted.directory else Path(tempfile.mkdtemp(prefix="umbilical-"))
        folder = wanted.directory or Path(str(scratch)) / LAB_FOLDER
        was_there = folder.exists()
        try:
            with interrupts.heard():
                return scenario_run.run_scenario(replace(wanted, directory=folder), transcript)
        except KeyboardInterrupt:
            # `run_scenario` does this too, unless the interrupt came during its own clean-up.
            if not was_there:
                down(folder)
            raise
        finally:
            if scratch is not None:
                down(folder)
                shutil.rmtree(scratch, ignore_errors=True)


def check_report(asked: Path) -> Path:
    """Check the report's path before anything runs. Raises LabError: it is not writable (UMB870)."""
    if asked.is_dir() or not may_write(asked):
        why = "it is a directory" if asked.is_dir() else "its directory cannot be created or is not writable"
        raise LabError("UMB870", f"the report {asked} was not written", why, "choose another file: --report FILE")
    return asked


def may_write(path: Path) -> bool:
    folder = next(folder for folder in path.absolute().parents if folder.exists())
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def write(transcript: "Transcript", report: Path, *, is_stand_in: bool) -> Path:
    from umbilical.lab.report import write_report

    return write_report(transcript, report, is_stand_in=is_stand_in)


def close(transcript: "Transcript", report: Path | None) -> None:
    from umbilical.cli.lab.transcript_view import summary

    more = {} if report is None else {"report": str(report)}
    click.echo("\n" + summary(transcript, more), nl=False, color=has_colour())


def print_kept(place: str, *, has_tunnel: bool) -> None:
    """Print commands for a lab that stays up; `place` is its --name or --dir."""
    click.echo("\nThe lab is still up:")
    # A scenario that removed its tunnel leaves nothing to break.
    breaking = (f"break {place} agent-kill",) if has_tunnel else ()
    for command in (f"status {place}", f"shell {place} bootstrap", *breaking, f"down {place}"):
        click.echo(f"  {_program()} lab {command}")


def _program() -> str:
    """Return the program's path for lines to paste; in a clone `umbilical` is not on PATH."""
    return "umbilical" if shutil.which("umbilical") else os.path.relpath(sys.argv[0])


@click.command()
@click.argument("name")
@click.option("--runner", type=click.Choice(["process", "kubelet"]), help="How pods run; the scenario has a default.")
@click.option("--keep", is_flag=True, help="Keep the lab and its tunnel, for `lab shell` and `lab break`.")
@click.option("--name", "lab_name", default="lab", show_default=True, help="Name of the lab; one that is up is used.")
@click.option("--dir", "directory", type=DIRECTORY, help="Lab directory, instead of --name.")
@click.option("--stand-in", is_flag=True, help="Run without Kubernetes, with a stand-in for kube-apiserver.")
@program_options
@image_option
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="File for an HTML report.")
def run(
    name: str,
    runner: str | None,
    keep: bool,
    lab_name: str,
    directory: Path | None,
    stand_in: bool,
    bin_dir: Path | None,
    kubernetes_version: str | None,
    image: Path | None,
    report: Path | None,
) -> None:
    """Run the scenario NAME and show each step.

    `umbilical lab list` lists the scenarios.
    """
    from umbilical.lab.scenario_run import ScenarioRun
    from umbilical.lab.scenarios import scenario as registry
    from umbilical.lab.state import LabDirectory, RunnerKind, default_directory, read_state

    scenario = registry.find(name)
    report = report and check_report(report)
    place = directory or default_directory(lab_name)
    is_up = (state := read_state(LabDirectory(place))) is not None and state.is_alive()
    scenario_run = ScenarioRun(
        scenario,
        RunnerKind(runner) if runner else scenario.runners[0],
        stand_in=stand_in,
        keep=keep,
        directory=place if keep or is_up or directory else None,
        name=lab_name,
        bin_dir=bin_dir,
        kubernetes_version=kubernetes_version,
        image=image,
    )
    transcript, lab = run_in_view(scenario_run, scenario.name, report)
    close(transcript, report and write(transcript, report, is_stand_in=scenario_run.stand_in))
    if lab is not None:
        where = f"--dir {directory}" if directory else f"--name {lab_name}"
        is_cut = scenario.end is not None and not keep
        print_kept(where, has_tunnel=lab.directory.testbed_file.exists() and not is_cut)
