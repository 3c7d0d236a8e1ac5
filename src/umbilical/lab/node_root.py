"""A node's file system: a directory on disk with its own files, and this machine's programs mounted read-only.

`build` creates the directory; `enter` runs in a child of the keeper and makes it the child's root. The mounts are
visible only inside the node. A node's own files are read and written directly from outside.
"""

import os
import shutil
import sys
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from umbilical.host import namespaces
from umbilical.host.files import SECRET_MODE, make_directory, write_file
from umbilical.host.namespaces import MountFlag

SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC_DIRECTORIES: Final = ("/etc/ssl", "/etc/pki", "/etc/alternatives", "/etc/ld.so.conf.d")
HOST_CONF: Final = "/etc/host.conf"
ETC_FILES: Final = (
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/protocols",
    "/etc/services",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/os-release",
)
"""Copied, so that a node can change them."""
OWN: Final = ("/etc", "/run", "/var", "/var/log", "/var/lib", "/opt", "/root", "/home", "/mnt", "/srv", "/dev", "/sys")
OPEN: Final = ("/tmp", "/var/tmp")
LOCAL_PROGRAMS: Final = "/usr/local/bin"
LOCAL_PROGRAMS_STORE: Final = "/var/usrlocal/bin"
"""Directory of a node's own /usr/local/bin, as on Fedora CoreOS: /usr is the machine's and read-only."""
PATH: Final = f"{LOCAL_PROGRAMS}:/usr/bin:/bin:/usr/sbin:/sbin"
DIRECTORY_MODE: Final = 0o755
_ANCHOR: Final = ("sleep", "infinity")


def build(root: Path, name: str, hosts: str, programs: Path, binaries: Iterable[str], shared: Iterable[str]) -> None:
    """Create the directory: mount points, the node's own files, and a copy of the lab's programs."""
    make_directory(root, DIRECTORY_MODE)
    for place in (*OWN, "/proc", *shared, *filter(os.path.isdir, ETC_DIRECTORIES)):
        make_directory(inside(root, place), DIRECTORY_MODE)
    for place in OPEN:
        make_directory(inside(root, place)).chmod(0o1777)
    for place in SYSTEM:
        _stand_in(root, place)
    for place in filter(os.path.isfile, ETC_FILES):
        shutil.copyfile(place, inside(root, place))
    _copy_programs(programs, inside(root, LOCAL_PROGRAMS_STORE), covered_programs(binaries))
    _own_files(root, name, hosts)


def inside(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def environment(name: str) -> dict[str, str]:
    """Return the environment of processes on a node. It has nothing of the caller's, which may contain secrets."""
    own = {"PATH": PATH, "HOME": "/root", "HOSTNAME": name}
    # A node runs the same Python and needs its path to our package.
    if "PYTHONPATH" in os.environ:
        own["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return own


def shared_directories(binaries: Iterable[str]) -> list[str]:
    """List the directories of this machine that a node needs besides the system's.

    These are the directories of Python, of its path, and of the given programs; each also by its real path, because a
    link in a path does not exist on the node.
    """
    python = [
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        *sys.path,
        *map(os.path.dirname, _link_chain(sys.executable)),
    ]
    wanted = [*python, *(os.path.dirname(path) for binary in binaries for path in _link_chain(binary))]
    real = {path for item in wanted for path in (os.path.abspath(item), os.path.realpath(item)) if item}
    return _outermost(path for path in real if os.path.isdir(path) and path != "/")


def covered_programs(binaries: Iterable[str]) -> list[str]:
    """List the needed programs in this machine's /usr/local/bin, which the node's own one hides."""
    chains = [path for program in (sys.executable, *binaries) for path in _link_chain(program)]
    return [path for path in dict.fromkeys(chains) if os.path.dirname(path) == LOCAL_PROGRAMS]


def enter(root: Path, name: str, network: Path, binaries: Sequence[str], shared: Sequence[str]) -> None:
    """Move this process into the node: network, host name and root. Only for a process started for it."""
    namespaces.enter(network, namespaces.NamespaceKind.NETWORK)
    namespaces.unshare(namespaces.NamespaceKind.MOUNT | namespaces.NamespaceKind.UTS)
    namespaces.set_hostname(name)
    namespaces.bind(root, root)
    for place in _mounted(shared):
        namespaces.bind(place, inside(root, place), is_read_only=True)
    store = inside(root, LOCAL_PROGRAMS_STORE)
    for path in covered_programs(binaries):
        namespaces.bind(path, store / os.path.basename(path), is_read_only=True)
    namespaces.bind(store, inside(root, LOCAL_PROGRAMS))
    _mount_kernel(root)
    namespaces.pivot_root(root)


def anchor(name: str) -> None:
    """Replace this process with the one that holds the node's namespaces open."""
    os.execvpe(_ANCHOR[0], _ANCHOR, environment(name))


def _mounted(shared: Sequence[str]) -> list[str]:
    system = [place for place in SYSTEM if os.path.isdir(place) and not os.path.islink(place)]
    return [*system, *filter(os.path.isdir, ETC_DIRECTORIES), *shared]


def _mount_kernel(root: Path) -> None:
    harmless = MountFlag.NO_SUID | MountFlag.NO_DEVICES
    namespaces.mount("proc", root / "proc", "proc", harmless | MountFlag.NO_EXEC)
    namespaces.bind("/sys", root / "sys")
    namespaces.bind("/dev", root / "dev")
    # Not the machine's: programs could leave files there.
    if os.path.isdir("/dev/shm"):
        namespaces.mount("tmpfs", root / "dev/shm", "tmpfs", harmless, "mode=1777")


def _copy_programs(programs: Path, store: Path, covered: Iterable[str]) -> None:
    make_directory(store.parent, DIRECTORY_MODE)
    shutil.copytree(programs, store, symlinks=True)
    for path in covered:
        place = store / os.path.basename(path)
        place.unlink(missing_ok=True)
        place.touch()


def _stand_in(root: Path, place: str) -> None:
    if os.path.islink(place):
        inside(root, place).symlink_to(os.readlink(place))
    elif os.path.isdir(place):
        make_directory(inside(root, place), DIRECTORY_MODE)


def _own_files(root: Path, name: str, hosts: str) -> None:
    content = {
        "/etc/hostname": f"{name}\n",
        "/etc/hosts": hosts,
        # No DNS server: a name that is not in /etc/hosts fails at once.
        "/etc/resolv.conf": "",
        # Return all addresses of a name in /etc/hosts, not only the first.
        HOST_CONF: "multi on\n",
        "/etc/machine-id": f"{uuid.uuid4().hex}\n",
    }
    for path, text in content.items():
        write_file(inside(root, path), text.encode(), 0o644)
    inside(root, "/etc/mtab").symlink_to("../proc/self/mounts")


def _link_chain(path: str) -> list[str]:
    """List a file and every symbolic link in its path."""
    chain = [os.path.abspath(path)]
    while os.path.islink(chain[-1]) and len(chain) < 20:
        target = os.path.join(os.path.dirname(chain[-1]), os.readlink(chain[-1]))
        chain.append(os.path.normpath(target))
    return chain


def _outermost(paths: Iterable[str]) -> list[str]:
    """Drop directories inside the system's directories or inside another one of the list."""
    kept: list[str] = []
    for path in sorted(paths):
        if not any(path == outer or path.startswith(f"{outer}/") for outer in (*SYSTEM, *kept)):
            kept.append(path)
    return kept


# The kernel's limit: path_resolution(7).
MOST_LINKS: Final = 40


def locate(root: Path, path: str) -> Path:
    """Return the path on disk of a path on the node, following links as the node does.

    Every step stays below `root`: a link to `/etc/shadow` must not lead to this machine's file.
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
        if done == _parts(LOCAL_PROGRAMS):
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
    """Remove a file, a link (not its target) or a directory tree; a missing path is fine."""
    *folder, name = _parts(path) or [".."]
    if name == "..":
        raise ValueError(f"{path} is not a path that can be removed")
    place = locate(root, "/".join(folder)) / name
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def exists(root: Path, path: str) -> bool:
    return locate(root, path).exists()


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
