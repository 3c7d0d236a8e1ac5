"""Atomic file writes: under a temporary name with the final mode, then renamed; of several files, all are written
before the first is renamed."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

from umbilical.fault import HostError

SECRET_MODE: Final = 0o600
PUBLIC_MODE: Final = 0o644
DIRECTORY_MODE: Final = 0o700


def make_directory(path: Path, mode: int = DIRECTORY_MODE) -> Path:
    """Create a directory and its missing parents with this mode; existing ones keep theirs."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        # mkdir's mode is subject to the umask; a directory for keys needs the exact mode.
        folder.chmod(mode)
    return path


def write_file(path: Path, content: bytes, mode: int = SECRET_MODE, *, overwrite: bool = False) -> Path:
    """Write a file atomically, never readable with a wider mode than requested.

    The default mode is for keys: a forgotten mode must not expose one.

    Raises HostError: the file exists and `overwrite` is not set.
    """
    scratch = _write_scratch(path, content, mode)
    try:
        if overwrite:
            scratch.replace(path)
        else:
            _link_new(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)
    _sync_directory(path.parent)
    return path


def write_public(path: Path, content: bytes, *, overwrite: bool = False) -> Path:
    """Write a file that everyone may read: certificates, manifests."""
    return write_file(path, content, PUBLIC_MODE, overwrite=overwrite)


def _write_scratch(path: Path, content: bytes, mode: int) -> Path:
    # mkstemp opens with 0600 regardless of the umask, so others can never read the content.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def _link_new(scratch: Path, path: Path) -> None:
    """Link instead of rename: a link fails if the name is taken."""
    try:
        path.hardlink_to(scratch)
    except FileExistsError as error:
        raise HostError(
            "UMB801",
            f"{path} exists and was not overwritten",
            "it may be in use, and a lost key cannot be recreated",
            f"mv {path} {path}.old, or pass the option that allows overwriting",
        ) from error


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileToWrite(Protocol):
    """A file to write. Its path is relative to a directory, even if it begins with a slash."""

    @property
    def path(self) -> str: ...
    @property
    def content(self) -> bytes: ...
    @property
    def mode(self) -> int: ...


def place_of(folder: Path, file: FileToWrite) -> Path:
    return folder / file.path.lstrip("/")


def write_all(files: Sequence[FileToWrite], folder: Path, removed: Iterable[Path] = ()) -> None:
    """Write every file below `folder`, then delete `removed`; on failure restore everything.

    Raises OSError: the directory is not writable; nothing was changed.
    """
    # On the same file system, so that files can be renamed.
    beside = folder if folder.exists() else make_directory(folder.parent)
    stage = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=beside))
    try:
        for file in files:
            make_directory(place_of(stage, file).parent)
            write_file(place_of(stage, file), file.content, file.mode)
        if folder.exists():
            _move_all(files, stage, folder, removed)
        else:
            stage.rename(folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _move_all(files: Sequence[FileToWrite], stage: Path, folder: Path, removed: Iterable[Path]) -> None:
    old = make_directory(stage / ".old")
    moved: list[tuple[Path, Path]] = []
    try:
        for file in files:
            place = place_of(folder, file)
            make_directory(place.parent)
            moved.append((_kept(old, place, len(moved)), place))
            place_of(stage, file).replace(place)
        for place in removed:
            moved.append((_kept(old, place, len(moved)), place))
            place.unlink(missing_ok=True)
    except BaseException:
        for kept, place in reversed(moved):
            _put_back(kept, place)
        raise


def _kept(old: Path, place: Path, number: int) -> Path:
    kept = old / str(number)
    if os.path.lexists(place):
        os.link(place, kept, follow_symlinks=False)
    return kept


def _put_back(kept: Path, place: Path) -> None:
    if os.path.lexists(kept):
        kept.replace(place)
    elif os.path.lexists(place):
        place.unlink()
