"""What a container's root is made of: its image, devices, kernel files, then volumes. Nothing is mounted here."""

import os
import posixpath
from collections.abc import Iterable, Mapping
from typing import Final

from umbilical.lab import node_root
from umbilical.lab.images import PROGRAMS_DIRECTORY, Image
from umbilical.lab.launchers import launcher
from umbilical.lab.pods.container_plan import Part, Piece
from umbilical.lab.pods.spec import Container, Mount

LAUNCHERS: Final = "/usr/local/bin"
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS: Final = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
}
_EMPTY: Final = ("/etc", "/run", "/var", "/root", "/home", PROGRAMS_DIRECTORY)
TERMINATION_LOG: Final = "/dev/termination-log"


def pieces(
    image: Image, container: Container, volumes: Mapping[str, str], files: Mapping[str, str], termination_log: str
) -> tuple[Piece, ...]:
    """`volumes` are directories of the node by volume name, `files` are files of the node by place in the container."""
    base = _python_image(image) if image.is_python else _static_image(image)
    own = [Piece(Part.BIND, target, source) for target, source in files.items()]
    mounts = [
        _mount(mount, volumes[mount.volume])
        # A mount below another one must come after it, in whatever order the manifest has them.
        for mount in sorted(container.mounts, key=lambda mount: mount.path.count("/"))
    ]
    return (*base, *_kernel(termination_log), *own, *mounts)


def _mount(mount: Mount, place: str) -> Piece:
    source = posixpath.join(place, mount.sub_path) if mount.sub_path else place
    return Piece(Part.BIND, mount.path, source, is_read_only=mount.is_read_only)


def _static_image(image: Image) -> list[Piece]:
    programs = [
        Piece(Part.BIND, f"{PROGRAMS_DIRECTORY}/{name}", str(path), is_read_only=True)
        for name, path in image.programs.items()
    ]
    return [*_empty_directories(), *programs]


def _python_image(image: Image) -> list[Piece]:
    """Like a distribution's image with our package installed: this node's system, and nothing of its own files."""
    system: list[Piece] = []
    for place in node_root.SYSTEM:
        if os.path.islink(place):
            system.append(Piece(Part.LINK, place, os.readlink(place)))
        else:
            system.append(_shared(place))
    etc = [_shared(place) for place in (*node_root.ETC_DIRECTORIES, *node_root.ETC_FILES, node_root.HOST_CONF)]
    python = [_shared(place) for place in node_root.shared_directories(())]
    # Where Python itself lies in /usr/local/bin, it must show through what covers that.
    covered = [Piece(Part.BIND, place, place, is_read_only=True) for place in node_root.covered_programs(())]
    launchers = [Piece(Part.FILE, f"{LAUNCHERS}/{name}", launcher(module)) for name, module in image.modules.items()]
    return [*_empty_directories(), *system, *etc, *python, Piece(Part.MEMORY, LAUNCHERS), *covered, *launchers]


def _shared(place: str) -> Piece:
    return Piece(Part.BIND, place, place, is_read_only=True, is_optional=True)


def _empty_directories() -> Iterable[Piece]:
    yield from (Piece(Part.DIRECTORY, place) for place in _EMPTY)
    yield Piece(Part.DIRECTORY, "/tmp", mode=0o1777)
    yield Piece(Part.DIRECTORY, "/var/tmp", mode=0o1777)


def _kernel(termination_log: str) -> Iterable[Piece]:
    yield Piece(Part.BIND, "/proc", "/proc")
    yield Piece(Part.BIND, "/sys", "/sys", is_read_only=True)
    yield Piece(Part.MEMORY, "/dev")
    yield from (Piece(Part.BIND, f"/dev/{name}", f"/dev/{name}", is_optional=True) for name in _DEVICES)
    yield from (Piece(Part.LINK, place, target) for place, target in _DEVICE_LINKS.items())
    yield Piece(Part.MEMORY, "/dev/shm", mode=0o1777)
    yield Piece(Part.BIND, TERMINATION_LOG, termination_log)
