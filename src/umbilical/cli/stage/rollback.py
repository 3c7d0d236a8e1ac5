"""`umbilical stage rollback`: a stage and all after it taken back, by what the record says."""

from pathlib import Path

import click

from umbilical.cli.stage.options import directory_option
from umbilical.cli.stage.range import find_stage


@click.command()
@click.argument("name", metavar="STAGE")
@directory_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def rollback(name: str, folder: Path, yes: bool) -> None:
    """Undo STAGE and every later stage, newest first. Refused with status 7 after a point of no return."""
    from umbilical.cli.stage.work import confirm, going_back
    from umbilical.hardway.stages import catalogue
    from umbilical.hardway.undoing import touched

    stage = find_stage(name, catalogue.stages())
    with going_back(folder) as work:
        chosen = [number for number in touched(work.ledger.state) if number >= stage.number]
        if not chosen:
            click.echo(f"nothing to undo: neither stage {stage.number:02} nor a later one has left anything", err=True)
            return
        confirm(f"undo the stages {', '.join(f'{number:02}' for number in chosen)}?", yes=yes)
        for number in work.undoing().rollback(stage.number):
            click.echo(f"{number:02} undone")
