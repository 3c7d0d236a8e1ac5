"""Many files at once: all are written beside their places before the first gets its name."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from umbilical.host.files import make_directory, write_file


class Content(Protocol):
    """A file that is to be; its path is meant below a directory, also where it begins with a slash."""

    @property
    def path(self) -> str: ...
    @property
    def content(self) -> bytes: ...
    @property
    def mode(self) -> int: ...


def place_of(folder: Path, file: Content) -> Path:
    return folder / file.path.lstrip("/")


def write_all(files: Sequence[Content], folder: Path, removed: Iterable[Path] = ()) -> None:
    """Write every file to its path below `folder`, then remove what is to go; should a rename fail, all is put back.

    Raises:
        OSError: the directory cannot be written to; nothing was changed.
    """
    # On the same file system in either case, so that a rename is all that is left to do.
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


def _move_all(files: Sequence[Content], stage: Path, folder: Path, removed: Iterable[Path]) -> None:
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
