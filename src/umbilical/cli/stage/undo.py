"""`umbilical stage rollback` and `destroy`: undo a stage and all later ones, or everything in the record."""

from pathlib import Path

import click

from umbilical.cli.stage.cluster import confirm, directory_option, find_stage, going_back


@click.command()
@click.argument("name", metavar="STAGE")
@directory_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def rollback(name: str, folder: Path, yes: bool) -> None:
    """Undo STAGE and every later stage, newest first.

    Exits with status 7, and undoes nothing, if one of them is past its point of no return.
    """
    from umbilical.hardway.stages import catalogue
    from umbilical.hardway.undoing import touched

    stage = find_stage(name, catalogue.stages())
    with going_back(folder) as work:
        chosen = [number for number in touched(work.ledger.state) if number >= stage.number]
        if not chosen:
            click.echo(f"nothing to undo: stage {stage.number:02} and later stages made no changes", err=True)
            return
        confirm(f"undo the stages {', '.join(f'{number:02}' for number in chosen)}?", yes=yes)
        for number in work.undoing().rollback(stage.number):
            click.echo(f"{number:02} undone")


@click.command()
@directory_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def destroy(folder: Path, yes: bool) -> None:
    """Delete the cluster: machines, networks and artifacts.

    All keys are deleted too. cluster.yaml, the journal, and the images of labs in the user's cache are kept.
    """
    from umbilical.hardway.undoing import touched
    from umbilical.hardway.workspace import forget_identity

    with going_back(folder) as work:
        if not touched(work.ledger.state):
            # A plan, or a destroy that was killed, may have left it.
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
    click.echo(_kept(folder), err=True, nl=False)


def _kept(folder: Path) -> str:
    """Say what is still on disk, and what it is for."""
    from umbilical.hardway.journal import JOURNAL
    from umbilical.hardway.ledger import RECORD
    from umbilical.hardway.workspace import CONFIG
    from umbilical.lab.kubelet.archives import cache_directory

    places = {
        folder / CONFIG: "for the next cluster",
        folder / RECORD / JOURNAL: "journal of this one",
        cache_directory(): "images of all labs of this user; `rm -r` frees the space",
    }
    return "".join(f"kept {path}: {purpose}\n" for path, purpose in places.items() if path.exists())
