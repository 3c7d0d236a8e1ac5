"""`umbilical stage rotate`: keys and certificates made anew; until then they stay as they are."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from umbilical.cli.stage.options import directory_option, utc_now

if TYPE_CHECKING:
    from umbilical.hardway.rendering import Rendered


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@directory_option
@click.option("--due", is_flag=True, help="Also all that ended, or ends before an installation may be done.")
def rotate(ids: tuple[str, ...], folder: Path, due: bool) -> None:
    """Make keys and certificates anew by their names in artifacts/tls; a signer takes all that it signed with it.

    Only artifacts/tls is written. Everything else that holds them follows with the next `umbilical stage run`.
    """
    from umbilical.hardway import rendering, workspace
    from umbilical.hardway.locking import locked

    if not ids and not due:
        raise click.UsageError("name what to make anew, or give --due for what its age demands")
    # Nothing of a directory is touched, not even for its lock, that is none of a cluster.
    workspace.read_config(folder)
    with locked(folder, "umbilical stage rotate", utc_now().isoformat(timespec="seconds")):
        rendered = rendering.render(folder, utc_now(), rotate=ids, renew_due=due)
        rendering.keep(folder, rendered)
    _tell(rendered)


def _tell(rendered: "Rendered") -> None:
    for change in rendered.renewed:
        click.echo(f"{change.id}: {change.why}")
    if not rendered.renewed:
        click.echo("nothing was due", err=True)
    written = {asset.path for asset in rendered.made.by_recipe["pki"]}
    follows = [part.place for part in rendered.plan() if part.place not in written]
    if follows:
        click.echo(f"next: umbilical stage run; {len(follows)} other files follow (umbilical stage plan)", err=True)
