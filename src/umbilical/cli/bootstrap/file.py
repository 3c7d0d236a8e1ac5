"""Options for the bootstrap.ign that a command reads (a file or an install directory) and where the result goes."""

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
        help="Install directory; gives bootstrap.ign, the platform and warnings.",
    ),
)
_PLATFORM_HELP: Final = "Platform whose size limits and firewall rules apply; default: from --dir or FILE."


def platform_name(text: str) -> str:
    """Parse a platform's name, in any letter case."""
    from umbilical.firewall.platforms.catalogue import NAMES

    if text.lower() not in NAMES:
        raise click.BadParameter(f"{text!r} is not a platform; known: {', '.join(NAMES)}")
    return text.lower()


platform_option: Final = click.option("--platform", type=platform_name, metavar="NAME", help=_PLATFORM_HELP)
_TARGET: Final = (
    click.option("--out", type=FILE, help="New file for the result."),
    click.option("--in-place", is_flag=True, help="Replace FILE with the result; implied by --dir."),
)


def source_options(command: Command) -> Command:
    return _decorated(command, _SOURCE)


def target_options(command: Command) -> Command:
    return _decorated(command, _TARGET)


def read_source(file: Path | None, directory: Path | None) -> "BootstrapFile":
    """Read FILE, or the bootstrap.ign of --dir."""
    from umbilical.bootstrap.bootstrap_file import read_file

    if (file is None) == (directory is None):
        raise click.UsageError("give either a FILE or --dir DIR")
    if file is not None:
        return read_file(file)
    from umbilical.bootstrap.install_dir import InstallDir

    assert directory is not None
    install_dir = InstallDir(directory)
    return read_file(install_dir.bootstrap_ignition, install_dir)


def target_of(source: "BootstrapFile", out: Path | None, in_place: bool) -> Path:
    """Choose where the result goes; only a file that the user named for it is replaced."""
    if out is not None and in_place:
        raise click.UsageError("give either --out or --in-place, not both")
    if out is not None:
        if out.exists() and out.samefile(source.path):
            raise click.UsageError(f"--out {out} is the input file: use --in-place to replace it")
        return out
    # The installer reads only the bootstrap.ign in its directory, so --dir implies that file.
    if in_place or source.install_dir is not None:
        return source.path
    raise click.UsageError("give --out NEWFILE or --in-place for the result")


def kibibytes(count: int) -> str:
    return f"{(count + KIBIBYTE // 2) // KIBIBYTE} KiB"


def print_warnings(source: "BootstrapFile") -> None:
    """Print the install directory's warnings on standard error."""
    from datetime import UTC, datetime

    if source.install_dir is not None:
        for warning in source.install_dir.warnings(datetime.now(UTC)):
            click.echo(f"warning: {warning}", err=True)


def _decorated(command: Command, options: tuple[Callable[[Any], Any], ...]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
