"""Options that the commands of `umbilical lab` share."""

from pathlib import Path
from typing import Final

import click

from umbilical.cli.options import ARCHIVE, Command, kubernetes_version_option

# Not `readable`: the lab reports a missing permission itself, with a remedy.
DIRECTORY: Final = click.Path(file_okay=False, readable=False, path_type=Path)
PROGRAMS: Final = click.Path(exists=True, file_okay=False, path_type=Path)


def lab_options(command: Command) -> Command:
    """Add --name and --dir; `chosen_directory` makes one path of them."""
    command = click.option("--dir", "directory", type=DIRECTORY, help="Lab directory, instead of --name.")(command)
    return click.option("--name", default="lab", show_default=True, help="Name of the lab.")(command)


def program_options(command: Command) -> Command:
    """Add --bin-dir and --kubernetes-version. A missing directory is an error: the cache is not used silently."""
    text = "Directory with the Kubernetes programs; default: the cache, then PATH."
    return kubernetes_version_option(click.option("--bin-dir", type=PROGRAMS, help=text)(command))


def image_option(command: Command) -> Command:
    """Add --image, an archive for the kubelet runner."""
    text = "Image archive from which our server and agents run, as `make image` writes it; needs --runner kubelet."
    return click.option("--image", type=ARCHIVE, help=text)(command)


def chosen_directory(name: str, directory: Path | None) -> Path:
    """Return the lab's directory. Raises LabError: the name is not valid for a lab."""
    from umbilical.lab.state import default_directory

    return directory.absolute() if directory is not None else default_directory(name)


def chosen_name(name: str, directory: Path | None) -> str:
    """Return the lab's name; with --dir it is the name of that directory."""
    return name if directory is None else directory.absolute().name
