"""Telling a story on the command line: the view, the lab around it, the report, the closing words."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
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
    lab: Lab | None = None

    def told(story: "Story") -> None:
        nonlocal lab
        lab = play(rehearsal, story)

    return _tell(told, title, report, is_stand_in=rehearsal.stand_in), lab


def tell_on_loopback(title: str, report: Path) -> "Story":
    """Tell the demo's story without a lab; an interrupt at any moment leaves nothing.

    Raises:
        Fault: a step did not come out as told.
    """
    from umbilical.host.processes import Interrupts
    from umbilical.lab import loopback

    def told(story: "Story") -> None:
        story.not_shown = loopback.NOT_SHOWN
        scratch = tempfile.TemporaryDirectory(prefix="umbilical-")
        with Interrupts() as interrupts, scratch as folder, interrupts.heard():
            loopback.tell(story, Path(folder))

    return _tell(told, title, report, is_stand_in=True)


def _tell(told: Callable[["Story"], None], title: str, report: Path | None, *, is_stand_in: bool) -> "Story":
    from umbilical.cli.lab.story_view import choose_view
    from umbilical.lab.story import Story

    story = Story(title)
    try:
        with choose_view(title, is_stand_in=is_stand_in) as teller:
            story = Story(title, teller)
            told(story)
    except KeyboardInterrupt:
        click.echo("\ninterrupted: all of it is taken down, nothing is left")
        raise
    except Exception:
        # One that never began is not worth a report.
        if story.steps and report is not None:
            click.echo(f"\nwhat was seen until then: {write(story, report, is_stand_in=is_stand_in)}\n")
        raise
    return story


def play(wanted: "Rehearsal", story: "Story") -> "Lab | None":
    """Rehearse so that an interrupt at any moment leaves nothing, also where the lab was to be kept."""
    from dataclasses import replace

    from umbilical.host.processes import Interrupts
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


def write(story: "Story", report: Path, *, is_stand_in: bool) -> Path:
    from umbilical.lab.report import write_report

    return write_report(story, report, is_stand_in=is_stand_in)


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
