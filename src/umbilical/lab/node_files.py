"""A node's files from outside: its root lies on disk, so nobody inside has to be asked."""

import os
import shutil
from pathlib import Path
from typing import Final

from umbilical.host.files import SECRET_MODE, make_directory, write_file
from umbilical.lab.node_root import DIRECTORY_MODE, LOCAL_PROGRAMS, LOCAL_PROGRAMS_STORE

# As many as the kernel follows: path_resolution(7).
MOST_LINKS: Final = 40


def locate(root: Path, path: str) -> Path:
    """Find the place on disk of a path on the node, following the node's links as the node itself would.

    A link to `/etc/shadow` inside must never lead to this machine's: every step is taken below `root`.
    """
    pending = [*reversed(_parts(path))]
    done: list[str] = []
    links = 0
    while pending:
        part = pending.pop()
        if part == "..":
            done[-1:] = []
            continue
        done.append(part)
        if _is_covered(done):
            done = _parts(LOCAL_PROGRAMS_STORE)
        place = root.joinpath(*done)
        if place.is_symlink():
            links += 1
            if links > MOST_LINKS:
                raise OSError(f"too many links in {path}")
            target = os.readlink(place)
            done = [] if target.startswith("/") else done[:-1]
            pending.extend(reversed(_parts(target)))
    return root.joinpath(*done)


def write(root: Path, path: str, content: bytes, mode: int = SECRET_MODE) -> None:
    place = locate(root, path)
    make_directory(place.parent, DIRECTORY_MODE)
    write_file(place, content, mode, overwrite=True)


def read(root: Path, path: str) -> bytes:
    return locate(root, path).read_bytes()


def remove(root: Path, path: str) -> None:
    """Remove a file, a link itself, or a directory with all that is in it; what is not there is fine."""
    *folder, name = _parts(path) or [".."]
    if name == "..":
        raise ValueError(f"{path} is no name that can be removed")
    place = locate(root, "/".join(folder)) / name
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def exists(root: Path, path: str) -> bool:
    return locate(root, path).exists()


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _is_covered(parts: list[str]) -> bool:
    return parts == _parts(LOCAL_PROGRAMS)
