"""A containerd's store with the lab's images in it, kept in the user's cache, from which nodes begin.

Importing half a gigabyte takes a busy machine ten seconds a node. A copy that shares the files (hard links) takes
none: containerd never changes a blob or a layer, only its databases, and those are copied.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from umbilical.host.files import make_directory

MANIFEST: Final = "archives.json"
# The shared file systems of images and layers; everything else in containerd's root is of the running one.
_PARTS: Final = ("io.containerd.content.v1.content", "io.containerd.metadata.v1.bolt", "io.containerd.snapshotter.v1.*")
_DATABASE: Final = ".db"
# Labs of two versions may take turns on one machine, and those with fewer programs in between.
KEPT: Final = 3
LONG_AGO: Final = 3600.0
"""Seconds after which a store that is not finished belongs to a process that was killed."""


class ImageStore:
    """All stores for one kind of containerd: `kind` tells versions and snapshotters apart."""

    def __init__(self, cache: Path, kind: str) -> None:
        self._folder = cache / "stores"
        self._kind = kind

    def lay(self, archives: Sequence[str], target: Path) -> set[str]:
        """Fill a node's containerd directory with the store that has most of these, and return what is in it."""
        wanted = set(archives)
        found = max(self._stores(), key=lambda store: len(wanted & _names(store)), default=None)
        if found is None:
            return set()
        try:
            has = _names(found)
            _share(found, target)
        except OSError:
            # Another lab is removing it as too old.
            shutil.rmtree(target, ignore_errors=True)
            return set()
        os.utime(found)
        return has

    def keep(self, archives: Iterable[str], source: Path) -> None:
        """Remember what a containerd that has stopped has imported."""
        names = sorted(set(archives))
        make_directory(self._folder)
        place = self._folder / self._name(names)
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=".new-") as scratch:
            made = Path(scratch, "store")
            made.mkdir()
            _share(source, made)
            (made / MANIFEST).write_text(json.dumps(names))
            if not place.exists():
                made.rename(place)
        half_made = [path for path in self._folder.glob(".new-*") if time.time() - path.stat().st_mtime > LONG_AGO]
        for old in (*half_made, *sorted(self._stores(), key=lambda path: path.stat().st_mtime)[:-KEPT]):
            shutil.rmtree(old, ignore_errors=True)

    def _stores(self) -> list[Path]:
        return [path for path in self._folder.glob(f"{self._kind}-*") if (path / MANIFEST).is_file()]

    def _name(self, names: Iterable[str]) -> str:
        return f"{self._kind}-{hashlib.sha256(repr(list(names)).encode()).hexdigest()[:16]}"


def _names(store: Path) -> set[str]:
    return set(json.loads((store / MANIFEST).read_text()))


def _share(source: Path, target: Path) -> None:
    for part in (path for pattern in _PARTS for path in source.glob(pattern)):
        shutil.copytree(part, target / part.name, symlinks=True, copy_function=_link)


def _link(source: str, target: str) -> None:
    if source.endswith(_DATABASE) or os.path.islink(source):
        shutil.copy2(source, target, follow_symlinks=False)
        return
    try:
        os.link(source, target)
    except OSError:
        # The cache is on another file system than the lab, or the file has too many names.
        shutil.copy2(source, target)
