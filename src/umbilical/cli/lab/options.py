"""Which lab is meant: options that all commands of `umbilical lab` share."""

from pathlib import Path
from typing import Final

import click

from umbilical.cli.options import Command

# Not `readable`: who may not look into a lab is told by the lab, with what to do about it.
DIRECTORY: Final = click.Path(file_okay=False, readable=False, path_type=Path)
PROGRAMS: Final = click.Path(exists=True, file_okay=False, path_type=Path)


def lab_options(command: Command) -> Command:
    """Add --name and --dir; `chosen_directory` makes one path of them."""
    command = click.option("--dir", "directory", type=DIRECTORY, help="Where the lab lies, in place of --name.")(
        command
    )
    return click.option("--name", default="lab", show_default=True, help="Of the lab.")(command)


def bin_dir_option(command: Command) -> Command:
    """Add --bin-dir. One that is not there is refused: the cache would be taken without a word."""
    text = "Where programs of Kubernetes are; else the cache, then PATH."
    return click.option("--bin-dir", type=PROGRAMS, help=text)(command)


def chosen_directory(name: str, directory: Path | None) -> Path:
    """Say where the lab lies. Raises LabError: the name cannot be a lab's."""
    from umbilical.lab.state import default_directory

    return directory.absolute() if directory is not None else default_directory(name)


def chosen_name(name: str, directory: Path | None) -> str:
    """Say how the lab is called: one in a directory of the user's choice has that directory's name."""
    return name if directory is None else directory.absolute().name
