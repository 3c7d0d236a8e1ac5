"""`umbilical lab run`: one scenario, in a lab made for it or in one that is up.

`tell` and what follows it serve `lab demo` too: the view, the lab around it, the report, the closing words.
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

from umbilical.cli.lab.options import DIRECTORY, bin_dir_option
from umbilical.cli.terminal import has_colour
from umbilical.fault import LabError

if TYPE_CHECKING:
    from umbilical.lab.lab import Lab
    from umbilical.lab.scenario_run import ScenarioRun
    from umbilical.lab.transcript import Transcript

LAB_FOLDER: Final = "lab"


def run_in_view(scenario_run: "ScenarioRun", title: str, report: Path | None) -> "tuple[Transcript, Lab | None]":
    """Tell the story in a view; one that fails on its way is still written down, if there is a place for it.

    Raises Fault: the lab cannot be, or a step did not come out as told.
    """
    lab: Lab | None = None

    def work(transcript: "Transcript") -> None:
        nonlocal lab
        lab = play(scenario_run, transcript)

    return _run_in_view(work, title, report, is_stand_in=scenario_run.stand_in), lab


def run_on_loopback(title: str, report: Path) -> "Transcript":
    """Tell the demo's story without a lab; an interrupt leaves nothing. Raises Fault: a step failed."""
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
        click.echo("\ninterrupted: all of it is taken down, nothing is left")
        raise
    except Exception:
        # One that never began is not worth a report.
        if transcript.steps and report is not None:
            click.echo(f"\nwhat was seen until then: {write(transcript, report, is_stand_in=is_stand_in)}\n")
        raise
    return transcript


def play(wanted: "ScenarioRun", transcript: "Transcript") -> "Lab | None":
    """Run a scenario so that an interrupt at any moment leaves nothing, also where the lab was to be kept."""
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
            # A scenario_run does it too, unless it was itself interrupted there.
            if not was_there:
                down(folder)
            raise
        finally:
            if scratch is not None:
                down(folder)
                shutil.rmtree(scratch, ignore_errors=True)


def check_report(asked: Path) -> Path:
    """Refuse a place for the report before anything happens. Raises LabError: it cannot be written (UMB870)."""
    if asked.is_dir() or not may_write(asked):
        why = "it is a directory" if asked.is_dir() else "its directory cannot be made or written to"
        raise LabError("UMB870", f"the report {asked} cannot be written", why, "name another file: --report FILE")
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
    """Say what can be done with a lab that stays; `place` is its --name or --dir."""
    click.echo("\nThe lab is still up:")
    # After a story that ends with the cut there is nothing to break.
    breaking = (f"break {place} agent-kill",) if has_tunnel else ()
    for command in (f"status {place}", f"shell {place} bootstrap", *breaking, f"down {place}"):
        click.echo(f"  {_program()} lab {command}")


def _program() -> str:
    """Spell ourselves so that the line can be pasted, in a clone too, where nothing is on PATH."""
    return "umbilical" if shutil.which("umbilical") else os.path.relpath(sys.argv[0])


@click.command()
@click.argument("name")
@click.option("--runner", type=click.Choice(["process", "kubelet"]), help="Who runs pods; the scenario decides.")
@click.option("--keep", is_flag=True, help="Stop before the cut and leave the lab up, for `lab shell` and `lab break`.")
@click.option("--name", "lab_name", default="lab", show_default=True, help="Of the lab: one that is up is used.")
@click.option("--dir", "directory", type=DIRECTORY, help="Where the lab lies, in place of --name.")
@click.option("--stand-in", is_flag=True, help="Without Kubernetes: a caller of ours in kube-apiserver's place.")
@bin_dir_option
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write the story as one HTML file.")
def run(
    name: str,
    runner: str | None,
    keep: bool,
    lab_name: str,
    directory: Path | None,
    stand_in: bool,
    bin_dir: Path | None,
    report: Path | None,
) -> None:
    """Tell the scenario NAME step by step; `umbilical lab list` names them all."""
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
    )
    transcript, lab = run_in_view(scenario_run, scenario.name, report)
    close(transcript, report and write(transcript, report, is_stand_in=scenario_run.stand_in))
    if lab is not None:
        where = f"--dir {directory}" if directory else f"--name {lab_name}"
        is_cut = scenario.end is not None and not keep
        print_kept(where, has_tunnel=lab.directory.testbed_file.exists() and not is_cut)
