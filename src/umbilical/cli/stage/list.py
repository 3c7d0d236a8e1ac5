"""`umbilical stage list`: the stages and how far each is, from the record alone."""

from pathlib import Path

import click

from umbilical.cli.stage.options import directory_option


@click.command()
@directory_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Form.")
def list_(folder: Path, output: str) -> None:
    """List all stages with what the record says of them; `stage status` looks at what is so now."""
    from umbilical.cli.stage import report
    from umbilical.cli.terminal import has_colour
    from umbilical.hardway.ledger import look
    from umbilical.hardway.locking import holder
    from umbilical.hardway.stages import catalogue

    tell = report.list_json if output == "json" else report.list_table
    text = tell(catalogue.stages(), look(folder), is_locked=holder(folder) is not None)
    click.echo(text, nl=False, color=has_colour())
