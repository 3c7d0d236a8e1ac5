"""Files that are written for a pod, as the kubelet's atomic writer does it: all of a new version is seen, or nothing.

tls.crt -> ..data/tls.crt      ..data -> ..1      ..1/tls.crt
"""

import itertools
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

CURRENT: Final = "..data"
READABLE_BY_GROUP: Final = 0o440


@dataclass(frozen=True)
class WrittenFile:
    content: bytes = field(repr=False)
    mode: int


def write_payload(folder: Path, files: Mapping[str, WrittenFile], group: int | None = None) -> bool:
    """Make the folder show exactly these files; return whether anything changed.

    With a group (fsGroup) they belong to it and it can read them, whatever their mode says.
    """
    if _current(folder) == {path: file.content for path, file in files.items()}:
        return False
    version = _next_version(folder)
    for path, file in files.items():
        _write(version, path, file, group)
    own_by_group(version, group, 0o755)
    old = os.readlink(folder / CURRENT) if (folder / CURRENT).is_symlink() else None
    _point(folder / CURRENT, version.name)
    _show(folder, {path.split("/")[0] for path in files})
    if old is not None:
        shutil.rmtree(folder / old)
    return True


def _current(folder: Path) -> dict[str, bytes] | None:
    data = folder / CURRENT
    if not data.exists():
        return None
    return {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}


def _next_version(folder: Path) -> Path:
    for number in itertools.count(1):
        version = folder / f"..{number}"
        if not version.exists():
            version.mkdir(parents=True)
            return version
    raise AssertionError("unreachable")


def _write(version: Path, path: str, file: WrittenFile, group: int | None) -> None:
    place = version / path
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(file.content)
    own_by_group(place, group, file.mode if group is None else file.mode | READABLE_BY_GROUP)


def own_by_group(place: Path, group: int | None, mode: int) -> None:
    """Set the mode; with a group (fsGroup), hand the place to it, and a directory's new files as well."""
    if group is not None and place.is_dir():
        mode |= 0o2070
    if group is not None:
        try:
            os.chown(place, -1, group)
        except OSError:
            # Without root there is one group only, and everybody is in it.
            pass
    place.chmod(mode)


def _point(link: Path, target: str) -> None:
    scratch = link.with_name(f"{link.name}_new")
    scratch.symlink_to(target)
    scratch.replace(link)


def _show(folder: Path, names: set[str]) -> None:
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
    for name in names:
        if not (folder / name).is_symlink():
            _point(folder / name, f"{CURRENT}/{name}")
