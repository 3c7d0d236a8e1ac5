"""hostPath volumes: what must be there is there and of its kind, or the pod waits, as under the kubelet."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from umbilical.fault import Waiting
from umbilical.lab.pods.spec import HostPath, PathType

DIRECTORY_MODE: Final = 0o755
FILE_MODE: Final = 0o644
_CHECKS: Final[dict[PathType, Callable[[int], bool]]] = {
    PathType.DIRECTORY: stat.S_ISDIR,
    PathType.DIRECTORY_OR_CREATE: stat.S_ISDIR,
    PathType.FILE: stat.S_ISREG,
    PathType.FILE_OR_CREATE: stat.S_ISREG,
    PathType.SOCKET: stat.S_ISSOCK,
    PathType.CHARACTER_DEVICE: stat.S_ISCHR,
    PathType.BLOCK_DEVICE: stat.S_ISBLK,
}


def provide(volume: str, wanted: HostPath) -> Path:
    """Return the path, made where the type asks for it.

    Raises:
        Waiting: UMB833, it is missing or something else.
    """
    path = Path(wanted.path)
    try:
        _create(path, wanted.type)
        mode = path.stat().st_mode
    except OSError as error:
        raise _refused(volume, wanted, error.strerror or str(error)) from None
    check = _CHECKS.get(wanted.type)
    if check is not None and not check(mode):
        raise _refused(volume, wanted, f"it is no {wanted.type.value.removesuffix('OrCreate')}")
    return path


def _create(path: Path, kind: PathType) -> None:
    # Without a type a missing path becomes a directory: the container runtime makes it.
    if kind in (PathType.DIRECTORY_OR_CREATE, PathType.ANY) and not path.exists():
        path.mkdir(DIRECTORY_MODE, parents=True)
    if kind is PathType.FILE_OR_CREATE and not path.exists():
        path.touch(FILE_MODE)


def _refused(volume: str, wanted: HostPath, why: str) -> Waiting:
    return Waiting(
        "UMB833",
        f"volume {volume}: hostPath type check failed: {wanted.path}",
        why,
        f"put a {wanted.type.value or 'path'} there; the pod starts by itself then",
        "ContainerCreating",
    )
