"""Telling a story on the command line: the view, the lab around it, the report, the closing words."""

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

LAB_FOLDER: Final = "lab"


def tell(rehearsal: "Rehearsal", title: str, report: Path | None) -> "tuple[Story, Lab | None]":
    """Tell the story in a view; one that fails on its way is still written down, if there is a place for it.

    Raises:
        Fault: the lab cannot be, or a step did not come out as told.
    """
    from umbilical.cli.lab.story_view import choose_view
    from umbilical.lab.story import Story

    story = Story(title)
    try:
        with choose_view(title, is_stand_in=rehearsal.stand_in) as teller:
            story = Story(title, teller)
            lab = play(rehearsal, story)
    except KeyboardInterrupt:
        click.echo("\ninterrupted: the lab is taken down, nothing is left of it")
        raise
    except Exception:
        # One that never began is not worth a report.
        if story.steps and report is not None:
            click.echo(f"\nwhat was seen until then: {write(story, report, rehearsal)}\n")
        raise
    return story, lab


def play(wanted: "Rehearsal", story: "Story") -> "Lab | None":
    """Rehearse so that an interrupt at any moment leaves nothing, also where the lab was to be kept."""
    from dataclasses import replace

    from umbilical.host.interrupts import Interrupts
    from umbilical.lab import rehearsal
    from umbilical.lab.lab import down

    with Interrupts() as interrupts:
        scratch = None if wanted.directory else Path(tempfile.mkdtemp(prefix="umbilical-"))
        folder = wanted.directory or Path(str(scratch)) / LAB_FOLDER
        was_there = folder.exists()
        try:
            with interrupts.heard():
                return rehearsal.rehearse(replace(wanted, directory=folder), story)
        except KeyboardInterrupt:
            # A rehearsal does it too, unless it was itself interrupted there.
            if not was_there:
                down(folder)
            raise
        finally:
            if scratch is not None:
                down(folder)
                shutil.rmtree(scratch, ignore_errors=True)


def check_report(asked: Path) -> Path:
    """Refuse a place for the report before anything happens.

    Raises:
        LabError: it cannot be written (UMB870).
    """
    from umbilical.fault import LabError

    if asked.is_dir() or not may_write(asked):
        why = "it is a directory" if asked.is_dir() else "its directory cannot be made or written to"
        raise LabError("UMB870", f"the report {asked} cannot be written", why, "name another file: --report FILE")
    return asked


def may_write(path: Path) -> bool:
    folder = next(folder for folder in path.absolute().parents if folder.exists())
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def write(story: "Story", report: Path, rehearsal: "Rehearsal") -> Path:
    from umbilical.lab.report import write_report

    return write_report(story, report, is_stand_in=rehearsal.stand_in)


def close(story: "Story", report: Path | None) -> None:
    """Print the figures."""
    from umbilical.cli.lab.story_view import summary
    from umbilical.cli.terminal import has_colour

    more = {} if report is None else {"report": str(report)}
    click.echo("\n" + summary(story, more), nl=False, color=has_colour())


def tell_kept(place: str, *, has_tunnel: bool) -> None:
    """Say what can be done with a lab that stays; `place` is its --name or --dir."""
    click.echo("\nThe lab is still up:")
    # After a story that ends with the cut there is nothing to break.
    breaking = (f"break {place} agent-kill",) if has_tunnel else ()
    for command in (f"status {place}", f"shell {place} bootstrap", *breaking, f"down {place}"):
        click.echo(f"  {_program()} lab {command}")


def _program() -> str:
    """Spell ourselves so that the line can be pasted, in a clone too, where nothing is on PATH."""
    return "umbilical" if shutil.which("umbilical") else os.path.relpath(sys.argv[0])
