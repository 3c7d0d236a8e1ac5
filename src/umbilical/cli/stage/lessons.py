"""`umbilical stage break` and `doctor`: break a cluster on purpose, and diagnose what is wrong."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from umbilical.cli.findings import output_option
from umbilical.cli.stage.cluster import directory_option, load_site, locking, reading_record, utc_now
from umbilical.codes import FINDINGS
from umbilical.fault import HardwayError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from umbilical.hardway.diagnosis import Diagnosis
    from umbilical.hardway.lessons.active_lesson import ActiveLesson
    from umbilical.hardway.lessons.lesson import Lesson


@click.command(name="break")
@click.argument("name", required=False, metavar="[LESSON]")
@directory_option
@click.option("--list", "lists", is_flag=True, help="List all lessons with their symptoms.")
@click.option("--live", "is_live", is_flag=True, help="Break running machines instead of the artifacts.")
@click.option("--mend", "mends", is_flag=True, help="Restore everything and print what was wrong.")
def break_(name: str | None, folder: Path, lists: bool, is_live: bool, mends: bool) -> None:
    """Break a cluster on purpose, as an exercise.

    LESSON changes files below artifacts/, or running machines with --live. `umbilical stage doctor` diagnoses it,
    `umbilical explain LESSON` prints the solution, and --mend restores everything.
    """
    if lists:
        click.echo(_listed(), nl=False)
    elif mends:
        _mend(name, folder)
    elif name is None:
        raise click.UsageError("give the name of a lesson; --list shows all")
    else:
        _break(name, folder, is_live=is_live)


def _break(name: str, folder: Path, *, is_live: bool) -> None:
    from umbilical.cli.stage.view import choose_view
    from umbilical.hardway import workspace
    from umbilical.hardway.lessons import active_lesson

    lesson = active_lesson.find_lesson(name)
    cluster = workspace.read_config(folder).cluster
    with locking(folder):
        if is_live:
            with choose_view(plain=True) as screen:
                active_lesson.spoil_machines(load_site(folder, screen), lesson)
        else:
            active_lesson.spoil_artifacts(folder, cluster, lesson, utc_now())
    click.echo(_told(lesson, folder, is_live=is_live), nl=False)


def _mend(name: str | None, folder: Path) -> None:
    from umbilical.hardway.lessons import active_lesson

    with locking(folder):
        active = active_lesson.current(folder)
        if active is None or (name is not None and name != active.lesson.id):
            raise _not_active(name, active)
        done = _mend_it(folder, active)
    lesson = active.lesson
    cause = lesson.live.cause if active.is_live and lesson.live is not None else lesson.cause
    click.echo(f"{lesson.id}: {done}\n  it was: {cause}\n  permanent fix: {lesson.permanent_fix}")


def _mend_it(folder: Path, active: "ActiveLesson") -> str:
    from umbilical.cli.stage.view import choose_view
    from umbilical.hardway.lessons import active_lesson

    if active.is_live:
        with choose_view(plain=True) as screen:
            are_there = active_lesson.mend_machines(load_site(folder, screen), active)
        return "the machines are restored" if are_there else "its machines no longer exist, so nothing was restored"
    mended = active_lesson.mend_artifacts(folder, active)
    others = len(active.left) - len(mended)
    return f"{len(mended)} files restored" + (f", {others} were already repaired" if others else "")


def _not_active(name: str | None, active: "ActiveLesson | None") -> Exception:
    if active is None:
        why, remedy = "no lesson is active in this directory", "umbilical stage break --list"
    else:
        why, remedy = f"the active lesson is {active.lesson.id}", "umbilical stage break --mend"
    return HardwayError("UMB752", f"there was nothing to restore{f' for {name}' if name else ''}", why, remedy)


def _told(lesson: "Lesson", folder: Path, *, is_live: bool) -> str:
    place = "the running machines" if is_live else "the files below artifacts/"
    where = f"--dir {shlex.quote(str(folder))}"
    commands = ("status",) if is_live else ("plan", "lint")
    lines = [
        f"{lesson.id}: something in {place} is broken now. Symptoms:",
        click.wrap_text(lesson.symptoms, 100, "  ", "  "),
        "",
        f"  find it        {'; '.join(f'umbilical stage {one} {where}' for one in commands)}",
        f"  diagnose       umbilical stage doctor {where}",
        f"  solution       umbilical explain {lesson.id}",
        f"  restore        umbilical stage break --mend {where}",
    ]
    return "\n".join(lines) + "\n"


def _listed() -> str:
    from umbilical.hardway.lessons.catalogue import LESSONS

    return "\n".join(map(_line, LESSONS)) + "\n"


def _line(lesson: "Lesson") -> str:
    profiles = ", ".join(sorted(profile.value for profile in lesson.profiles))
    live = ", --live" if lesson.live is not None else ""
    return f"{lesson.id}  ({profiles}{live})\n{click.wrap_text(lesson.symptoms, 100, '  ', '  ')}"


@click.command()
@directory_option
@output_option("table", "json")
def doctor(folder: Path, output: str) -> int:
    """Diagnose the artifacts, the record and running machines.

    Nothing is changed. The exit status is 1 if something is wrong.
    """
    found = _examined(folder)
    click.echo(_json(found) if output == "json" else _table(found), nl=False)
    if not found:
        click.echo("no problem found", err=True)
    return FINDINGS if found else 0


def _examined(folder: Path) -> "Sequence[Diagnosis]":
    from umbilical.hardway import workspace
    from umbilical.hardway.doctor import examine
    from umbilical.hardway.ledger import holder
    from umbilical.hardway.stages import catalogue

    with reading_record(folder) as (site, state):
        on_disk = workspace.read_artifacts(folder)
        return examine(site, state, on_disk, catalogue.stages(), is_locked=holder(folder) is not None)


def _table(found: "Sequence[Diagnosis]") -> str:
    from umbilical.checks.report import printable

    lines = [printable(line) for one in found for line in str(one).splitlines()]
    return "".join(f"{line}\n" for line in lines)


def _json(found: "Sequence[Diagnosis]") -> str:
    from umbilical.checks.report import API_VERSION

    values = [
        {"id": one.id, "hop": one.hop, "what": one.what, "why": one.why, "next": one.remedy, "lesson": one.lesson}
        for one in found
    ]
    return json.dumps({"apiVersion": API_VERSION, "kind": "Diagnoses", "diagnoses": values}, indent=2) + "\n"
