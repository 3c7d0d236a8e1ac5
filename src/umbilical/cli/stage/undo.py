"""`umbilical stage rollback` and `destroy`: take back a stage and all after it, or everything on record."""

from pathlib import Path

import click

from umbilical.cli.stage.cluster import confirm, directory_option, find_stage, going_back


@click.command()
@click.argument("name", metavar="STAGE")
@directory_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def rollback(name: str, folder: Path, yes: bool) -> None:
    """Undo STAGE and every later stage, newest first. Refused with status 7 after a point of no return."""
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


@click.command()
@directory_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def destroy(folder: Path, yes: bool) -> None:
    """Take the cluster down: machines, networks, artifacts with all keys. cluster.yaml and the journal stay."""
    from umbilical.hardway.undoing import touched
    from umbilical.hardway.workspace import forget_identity

    with going_back(folder) as work:
        if not touched(work.ledger.state):
            # Also what only a plan, or a destruction that was ended, has left.
            forget_identity(folder)
            click.echo("nothing to destroy: the record is empty", err=True)
            return
        cluster = work.site.cluster
        confirm(
            f"destroy the cluster {cluster.domain} with its {len(cluster.nodes)} machines and all its keys?", yes=yes
        )
        for number in work.undoing().destroy():
            click.echo(f"{number:02} undone")
        forget_identity(folder)
