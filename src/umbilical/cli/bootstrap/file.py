"""The bootstrap.ign that plan, patch and undo work on: named as a file or by its install directory, written whole."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.options import FILE, Command
from umbilical.fault import Fault

if TYPE_CHECKING:
    from umbilical.bootstrap.install_dir import InstallDir
    from umbilical.ignition.document import Document

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


@dataclass(frozen=True)
class BootstrapFile:
    path: Path
    content: bytes
    mode: int
    install_dir: "InstallDir | None" = None

    def document(self) -> "Document":
        """Parse it, so that every fault names the file."""
        from umbilical.fault import IgnitionError
        from umbilical.ignition.document import Document

        try:
            return Document(self.content)
        except IgnitionError as fault:
            raise IgnitionError(fault.code, f"{self.path}: {fault.what}", fault.why, fault.remedy) from None

    def platform(self) -> str | None:
        """What the install directory says; without one the config itself is asked."""
        from umbilical.fault import BootstrapError

        if self.install_dir is None:
            return None
        try:
            return self.install_dir.platform
        except BootstrapError:
            return None


def source_options(command: Command) -> Command:
    return _decorated(command, _SOURCE)


def target_options(command: Command) -> Command:
    return _decorated(command, _TARGET)


def read_source(file: Path | None, directory: Path | None) -> BootstrapFile:
    """Read the file that was named, in either way."""
    if (file is None) == (directory is None):
        raise click.UsageError("name one: a FILE, or --dir DIR")
    if file is not None:
        return _read(file, None)
    from umbilical.bootstrap.install_dir import InstallDir

    assert directory is not None
    install_dir = InstallDir(directory)
    return _read(install_dir.bootstrap_ignition, install_dir)


def target_of(source: BootstrapFile, out: Path | None, in_place: bool) -> Path:
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


def write_result(source: BootstrapFile, target: Path, content: bytes) -> None:
    """Write it whole, with the mode of what was read: the file is full of keys."""
    from umbilical.host.files import write_file

    # What a link points to is replaced, not the link.
    is_same = target == source.path
    place = target.resolve() if is_same else target
    try:
        before = place.stat() if is_same else None
        write_file(place, content, source.mode, overwrite=is_same)
        if before is not None and os.geteuid() == 0:
            os.chown(place, before.st_uid, before.st_gid)
    except OSError as fault:
        why = fault.strerror or str(fault)
        raise Fault("UMB002", f"cannot write {target}", why, f"look at its directory: ls -ld {target.parent}") from None


def kibibytes(count: int) -> str:
    return f"{(count + KIBIBYTE // 2) // KIBIBYTE} KiB"


def print_warnings(source: BootstrapFile) -> None:
    """Tell on standard error what the install directory gives reason to say."""
    from datetime import UTC, datetime

    if source.install_dir is not None:
        for warning in source.install_dir.warnings(datetime.now(UTC)):
            click.echo(f"warning: {warning}", err=True)


def _read(path: Path, install_dir: "InstallDir | None") -> BootstrapFile:
    from umbilical.ignition.json_text import MAX_CONFIG_BYTES

    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            # One byte more than allowed is enough to be refused.
            content = stream.read(MAX_CONFIG_BYTES + 1)
    except OSError as fault:
        why = fault.strerror or str(fault)
        raise Fault("UMB002", f"cannot read {path}", why, f"look at it: ls -l {path}") from None
    return BootstrapFile(path, content, stat.S_IMODE(status.st_mode), install_dir)


def _decorated(command: Command, options: tuple[Callable[[Any], Any], ...]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
