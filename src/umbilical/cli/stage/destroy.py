"""`umbilical stage destroy`: everything taken down that the record has, and nothing else."""

from pathlib import Path

import click

from umbilical.cli.stage.options import directory_option


@click.command()
@directory_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def destroy(folder: Path, yes: bool) -> None:
    """Take the cluster down: machines, networks, artifacts with all keys. cluster.yaml and the journal stay."""
    from umbilical.cli.stage.work import confirm, going_back
    from umbilical.hardway.identity import forget_identity
    from umbilical.hardway.undoing import touched

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
