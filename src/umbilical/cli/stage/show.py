"""`umbilical stage show`: one stage: what it is made from, what it does, what it checks, what became of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umbilical.cli.stage.options import directory_option, load_site
from umbilical.cli.stage.range import find_stage

if TYPE_CHECKING:
    from umbilical.hardway.site import Site
    from umbilical.hardway.stage import Stage
    from umbilical.hardway.state import StageRecord


@click.command()
@click.argument("name", metavar="STAGE")
@directory_option
@click.option(
    "--explain", "explains", is_flag=True, help="Say what it is for and how to see it by hand; needs no config."
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Form.")
def show(name: str, folder: Path, explains: bool, output: str) -> None:
    """Show one stage by number or name: needs, inputs, steps with their commands, checks, and the record of it."""
    from umbilical.cli.stage import report
    from umbilical.cli.stage.view import choose_view
    from umbilical.hardway.ledger import look
    from umbilical.hardway.stages import catalogue

    stage = find_stage(name, catalogue.stages())
    if explains:
        click.echo(report.explanation(stage), nl=False)
        return
    state = look(folder)
    with choose_view(plain=True) as screen:
        site = load_site(folder, screen)
        site.notes = {key: note.value for key, note in state.notes.items()}
        value = _value(stage, site, state.stage(stage.number), folder)
    click.echo(_json(value) if output == "json" else _table(value), nl=False)


def _value(stage: "Stage", site: "Site", record: "StageRecord", folder: Path) -> dict[str, Any]:
    from umbilical.cli.stage.report import stage_value
    from umbilical.hardway.locking import holder

    value = stage_value(stage, record, is_locked=holder(folder) is not None)
    recorded = value.pop("checks")
    return {
        **value,
        "inputs": dict(stage.inputs(site)),
        "files": list(site.files.get(stage.number, ())),
        "steps": [{"title": step.title, "command": step.command} for step in stage.steps(site)],
        "checks": [{"id": check.id, "title": check.title} for check in stage.checks(site)],
        "found": recorded,
    }


def _json(value: dict[str, Any]) -> str:
    import json

    from umbilical.checks.report import API_VERSION

    return json.dumps({"apiVersion": API_VERSION, "kind": "Stage", **value}, indent=2) + "\n"


def _table(value: dict[str, Any]) -> str:
    steps, checks, files, numbers = value["steps"], value["checks"], value["files"], value["needs"]
    needs = ", ".join(f"{number:02}" for number in numbers)
    lines = [
        f"{value['number']:02} {value['title']}",
        f"   status {value['status']}, needs {needs or 'nothing'}",
    ]
    lines += ["", "steps", *(f"   {step['title']}\n      $ {step['command']}" for step in steps)] if steps else []
    lines += ["", f"files ({len(files)})", *(f"   {name}" for name in files)] if files else []
    lines += ["", "checks", *(f"   {check['id']} {check['title']}" for check in checks)]
    return "\n".join(lines) + "\n"
