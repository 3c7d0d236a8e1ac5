"""Files that are whole or absent: written beside their place with their final mode, then renamed."""

import os
import tempfile
from pathlib import Path
from typing import Final

from umbilical.fault import HostError

SECRET_MODE: Final = 0o600
PUBLIC_MODE: Final = 0o644
DIRECTORY_MODE: Final = 0o700


def make_directory(path: Path, mode: int = DIRECTORY_MODE) -> Path:
    """Make a directory and its missing parents, all with this mode; one that exists keeps its own."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        # mkdir's mode is cut by the umask; a directory for keys must be exactly what was asked for.
        folder.chmod(mode)
    return path


def write_file(path: Path, content: bytes, mode: int = SECRET_MODE, *, overwrite: bool = False) -> Path:
    """Write a file so that nobody ever sees half of it, nor sees it with a wider mode than asked for.

    The default mode suits keys: forgetting it must not publish one.

    Raises:
        HostError: the file exists and `overwrite` is not set.
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
    """Write what everyone may read: certificates, manifests."""
    return write_file(path, content, PUBLIC_MODE, overwrite=overwrite)


def _write_scratch(path: Path, content: bytes, mode: int) -> Path:
    # mkstemp opens with 0600 whatever the umask, so the content is never readable by others on its way.
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
    """Give the scratch file its name only if that is free: a link fails where a rename would replace."""
    try:
        path.hardlink_to(scratch)
    except FileExistsError as error:
        raise HostError(
            "UMB801",
            f"{path} exists and is not overwritten",
            "what lies there may be in use, and a key that is lost cannot be made again",
            "move it away, or ask for overwriting",
        ) from error


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
