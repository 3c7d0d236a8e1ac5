"""Atomic file writes: under a temporary name that only the owner can read, then renamed; of several files, all are
written before the first is renamed. What a killed process leaves is removed by the next write of the same file."""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
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
    _remove_leftovers(path)
    descriptor, scratch = _new_scratch(path)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
            # Last, so that a process that is killed while it writes leaves a file that only its owner can read.
            os.fchmod(descriptor, mode)
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


def _scratch_prefix(path: Path) -> str:
    return f".{path.name}.umbilical-"


def _new_scratch(path: Path) -> tuple[int, Path]:
    """Create a scratch file and lock it: the lock ends with the process, so a leftover is one without a lock."""
    while True:
        # mkstemp opens with 0600 regardless of the umask, so others can never read the content.
        descriptor, name = tempfile.mkstemp(prefix=_scratch_prefix(path), dir=path.parent)
        # Waits only for a process that takes the file for a leftover right now. Without locks nobody removes it.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, Path(name)
        os.close(descriptor)


def _remove_leftovers(path: Path) -> None:
    """Delete scratch files for this path whose writers were killed."""
    prefix = _scratch_prefix(path)
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in [entry for entry in entries if entry.name.startswith(prefix)]:
            _remove_leftover(entry.path)


def _remove_leftover(name: str) -> None:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name)
    except OSError:
        # In use, or a file system without locks.
        pass
    finally:
        os.close(descriptor)


def _link_new(scratch: Path, path: Path) -> None:
    """Link instead of rename: a link fails if the name is taken."""
    try:
        path.hardlink_to(scratch)
    except FileExistsError as error:
        raise HostError(
            "UMB801",
            f"{path} exists and was not overwritten",
            "it may be in use, and a lost key cannot be recreated",
            f"mv {path} {path}.old",
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
