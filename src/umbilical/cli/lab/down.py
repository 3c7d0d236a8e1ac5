"""`umbilical lab down`: everything that a lab made is gone, whatever state it was in."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from umbilical.cli.lab.options import chosen_directory, lab_options

if TYPE_CHECKING:
    from umbilical.fault import LabError


@click.command()
@lab_options
@click.option("--all", "everyone", is_flag=True, help="Every lab in the default place.")
def down(name: str, directory: Path | None, everyone: bool) -> None:
    """Take a lab down, or what a crash left of one.

    Processes, namespaces, control groups and files: all that it made.
    """
    from umbilical.lab.state import list_labs

    if everyone and directory is not None:
        raise click.UsageError("--all and --dir name different things: give one of them")
    paths = list_labs() if everyone else [chosen_directory(name, directory)]
    faults = [fault for path in paths if (fault := _take_down(path)) is not None]
    if not paths:
        click.echo("there is no lab")
    # Of several, one that resists must not save the others.
    for fault in faults:
        raise fault


def _take_down(path: Path) -> "LabError | None":
    from umbilical.fault import LabError
    from umbilical.lab import lab

    try:
        click.echo(f"{path} is gone" if lab.down(path) else f"there is no lab in {path}")
    except LabError as fault:
        return fault
    return None
