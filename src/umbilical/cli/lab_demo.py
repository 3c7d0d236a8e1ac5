"""`umbilical lab demo`: the whole story in a lab of its own, told in the terminal and written into one HTML file."""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from umbilical.lab.lab import Lab
    from umbilical.lab.rehearsal import Rehearsal
    from umbilical.lab.story import Story

SCENARIO: Final = "webhook-through-tunnel"
TITLE: Final = "A webhook through the tunnel"
LAB_NAME: Final = "demo"
REPORT: Final = Path("out/demo/report.html")
_DIRECTORY: Final = click.Path(file_okay=False, path_type=Path)
_FILE: Final = click.Path(path_type=Path)
# A program that is missing, or cannot run here: then another one can stand in for it.
_NO_KUBERNETES: Final = ("UMB824", "UMB825")


@click.command()
@click.option("--keep", is_flag=True, help="Leave the lab up, for `lab status` and `lab shell`.")
@click.option("--fault", metavar="NAME", help="Show this fault instead; `umbilical lab list` names them.")
@click.option(
    "--stand-in/--real",
    "stand_in",
    default=None,
    help="Without Kubernetes, or only with it; else it is used where its programs are found.",
)
@click.option("--report", type=_FILE, metavar="FILE", help=f"Where the HTML report goes.  [default: {REPORT}]")
@click.option("--bin-dir", type=_DIRECTORY, help="Where programs of Kubernetes are; else the cache, then PATH.")
def demo(keep: bool, fault: str | None, stand_in: bool | None, report: Path | None, bin_dir: Path | None) -> None:
    """Show the whole story on this machine: blocked, tunnelled, cut; nothing stays behind."""
    from umbilical.cli.story_view import choose_view
    from umbilical.lab.story import Story

    place = report_place(report)
    rehearsal = _rehearsal(keep, fault, stand_in, bin_dir)
    title = TITLE if fault is None else f"A fault: {fault}"
    story = Story(title)
    try:
        with choose_view(title, is_stand_in=rehearsal.stand_in) as teller:
            story = Story(title, teller)
            lab = play(rehearsal, story)
    except KeyboardInterrupt:
        click.echo("\ninterrupted: the lab is taken down, nothing is left of it")
        raise
    except Exception:
        _keep_trace(story, place, rehearsal.stand_in)
        raise
    _close(story, _write(story, place, rehearsal.stand_in), rehearsal.stand_in)
    if lab is not None:
        _tell_kept(has_tunnel=fault is not None)


def report_place(asked: Path | None) -> Path | None:
    """Say where the report goes; None is a scratch directory, when this one cannot be written to.

    Raises:
        LabError: the user named a file that cannot be (UMB870).
    """
    from umbilical.lab.errors import LabError

    if asked is None:
        return REPORT if _may_write(REPORT) else None
    if asked.is_dir() or not _may_write(asked):
        why = "it is a directory" if asked.is_dir() else "its directory cannot be made or written to"
        raise LabError("UMB870", f"the report {asked} cannot be written", why, "name another file: --report FILE")
    return asked


def _may_write(path: Path) -> bool:
    folder = next(folder for folder in path.absolute().parents if folder.exists())
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _rehearsal(keep: bool, fault: str | None, stand_in: bool | None, bin_dir: Path | None) -> "Rehearsal":
    from dataclasses import replace

    from umbilical.lab.faults import registry as faults
    from umbilical.lab.rehearsal import Rehearsal
    from umbilical.lab.runner import RunnerKind
    from umbilical.lab.scenarios import registry as scenarios

    if fault is not None:
        faults.find(fault)
    wanted = Rehearsal(
        scenarios.find(SCENARIO),
        RunnerKind.PROCESS,
        keep=keep,
        name=LAB_NAME,
        fault=fault,
        bin_dir=bin_dir,
    )
    if stand_in is None:
        return replace(wanted, stand_in=not _has_kubernetes(wanted))
    return replace(wanted, stand_in=stand_in)


def _has_kubernetes(wanted: "Rehearsal") -> bool:
    """Look for its programs. Somebody who names a directory wants to hear what is wrong with it."""
    from umbilical.lab.errors import LabError
    from umbilical.lab.rehearsal import binaries

    try:
        binaries(wanted)
    except LabError as error:
        if wanted.bin_dir is not None or error.code not in _NO_KUBERNETES:
            raise
        click.echo(f"No Kubernetes here: {error.what}")
        click.echo("A caller of Umbilical's own stands in for kube-apiserver.\n")
        return False
    return True


def play(wanted: "Rehearsal", story: "Story") -> "Lab | None":
    """Rehearse so that an interrupt at any moment leaves nothing, also where the lab was to be kept."""
    from dataclasses import replace

    from umbilical.host.interrupts import Interrupts
    from umbilical.lab import rehearsal
    from umbilical.lab.paths import labs_root

    with Interrupts() as interrupts:
        scratch = None if wanted.keep else Path(tempfile.mkdtemp(prefix="umbilical-demo-"))
        folder = (scratch or labs_root()) / LAB_NAME
        was_there = folder.exists()
        try:
            with interrupts.heard():
                return rehearsal.rehearse(replace(wanted, directory=folder), story)
        except KeyboardInterrupt:
            if not was_there:
                _clear(folder)
            raise
        finally:
            if scratch is not None:
                _clear(folder)
                shutil.rmtree(scratch, ignore_errors=True)


def _clear(folder: Path) -> None:
    """Take away what is left of a lab: a rehearsal does it too, unless it was itself interrupted there."""
    from umbilical.lab.lab import down

    down(folder)


def _write(story: "Story", place: Path | None, is_stand_in: bool) -> Path:
    from umbilical.lab.report import write_report

    path = place or Path(tempfile.mkdtemp(prefix="umbilical-demo-")) / REPORT.name
    return write_report(story, path, is_stand_in=is_stand_in)


def _keep_trace(story: "Story", place: Path | None, is_stand_in: bool) -> None:
    """A story that failed on its way is worth a report; one that never began is not."""
    if story.steps:
        click.echo(f"\nwhat was seen until then: {_write(story, place, is_stand_in)}\n")


def _close(story: "Story", report: Path, is_stand_in: bool) -> None:
    from umbilical.cli.story_view import summary
    from umbilical.cli.terminal import has_colour

    click.echo("\n" + summary(story, {"report": str(report)}), nl=False, color=has_colour())
    if is_stand_in:
        click.echo("\nkube-apiserver was played by a stand-in: a caller of Umbilical's own that reads the same egress")
        click.echo("selector, dials through the same socket and sends a real AdmissionReview over TLS.")
        click.echo("With the real one, built from source (needs Go, some minutes):  make demo-real")


def _tell_kept(has_tunnel: bool) -> None:
    click.echo("\nThe lab is still up:")
    # After the whole story the tunnel is cut: only a story about a fault leaves one that can be broken again.
    breaking = ("break --name {} agent-kill",) if has_tunnel else ()
    for command in ("status --name {}", "shell --name {} bootstrap", *breaking, "down --name {}"):
        click.echo(f"  {_program()} lab {command.format(LAB_NAME)}")


def _program() -> str:
    """Spell ourselves so that the line can be pasted, in a clone too, where nothing is on PATH."""
    return "umbilical" if shutil.which("umbilical") else os.path.relpath(sys.argv[0])
