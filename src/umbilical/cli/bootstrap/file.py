"""How a command names the bootstrap.ign it works on, as a file or by its install directory, and where results go."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.options import FILE, Command

if TYPE_CHECKING:
    from umbilical.bootstrap.bootstrap_file import BootstrapFile

KIBIBYTE: Final = 1024
_SOURCE: Final = (
    click.argument("file", type=FILE, required=False),
    click.option(
        "--dir",
        "directory",
        type=click.Path(path_type=Path, file_okay=False),
        help="Take bootstrap.ign, platform and warnings from this install directory.",
    ),
)
_TARGET: Final = (
    click.option("--out", type=FILE, help="Write the result to this new file."),
    click.option("--in-place", is_flag=True, help="Replace FILE; with --dir that is what happens anyway."),
)


def source_options(command: Command) -> Command:
    return _decorated(command, _SOURCE)


def target_options(command: Command) -> Command:
    return _decorated(command, _TARGET)


def read_source(file: Path | None, directory: Path | None) -> "BootstrapFile":
    """Read the file that was named, in either way."""
    from umbilical.bootstrap.bootstrap_file import read_file

    if (file is None) == (directory is None):
        raise click.UsageError("name one: a FILE, or --dir DIR")
    if file is not None:
        return read_file(file)
    from umbilical.bootstrap.install_dir import InstallDir

    assert directory is not None
    install_dir = InstallDir(directory)
    return read_file(install_dir.bootstrap_ignition, install_dir)


def target_of(source: "BootstrapFile", out: Path | None, in_place: bool) -> Path:
    """Decide where the result goes; nothing is replaced that the user did not name for it."""
    if out is not None and in_place:
        raise click.UsageError("--out and --in-place exclude each other")
    if out is not None:
        if out.exists() and out.samefile(source.path):
            raise click.UsageError(f"{out} is the file that is read: use --in-place to replace it")
        return out
    # The installer reads bootstrap.ign in its directory and nothing else, so --dir can only mean that one.
    if in_place or source.install_dir is not None:
        return source.path
    raise click.UsageError("say where the result goes: --out NEWFILE, or --in-place")


def kibibytes(count: int) -> str:
    return f"{(count + KIBIBYTE // 2) // KIBIBYTE} KiB"


def print_warnings(source: "BootstrapFile") -> None:
    """Tell on standard error what the install directory gives reason to say."""
    from datetime import UTC, datetime

    if source.install_dir is not None:
        for warning in source.install_dir.warnings(datetime.now(UTC)):
            click.echo(f"warning: {warning}", err=True)


def _decorated(command: Command, options: tuple[Callable[[Any], Any], ...]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
