"""`umbilical stage doctor`: what is wrong with a cluster, where on the way it is, and what to do."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from umbilical.cli.stage.options import directory_option, load_site
from umbilical.codes import FINDINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from umbilical.hardway.doctor.diagnosis import Diagnosis


@click.command()
@directory_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Form.")
def doctor(folder: Path, output: str) -> int:
    """Look at the artifacts as they lie in DIR, at the record, and at machines that run; status 1 when something is
    wrong. Nothing is changed.
    """
    found = _examined(folder)
    click.echo(_json(found) if output == "json" else _table(found), nl=False)
    if not found:
        click.echo("nothing is wrong that the doctor knows of", err=True)
    return FINDINGS if found else 0


def _examined(folder: Path) -> "Sequence[Diagnosis]":
    from umbilical.cli.stage.view import choose_view
    from umbilical.hardway import workspace
    from umbilical.hardway.doctor.examination import examine
    from umbilical.hardway.ledger import look
    from umbilical.hardway.locking import holder
    from umbilical.hardway.stages import catalogue

    state = look(folder)
    with choose_view(plain=True) as screen:
        site = load_site(folder, screen)
        site.notes = {key: note.value for key, note in state.notes.items()}
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
