"""The end of a lab, whatever state it is in: its processes, its cgroups, and what it made in its directory."""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from umbilical.fault import LabError
from umbilical.lab.state import CONTENT, LOCK, STATE, LabDirectory, LabState, labs_root, read_state

KEEPER_MODULE: Final = "umbilical.lab.keeper"
# The keeper gives its programs five seconds, and then needs a moment for itself.
ORDERLY_SECONDS: Final = 8.0
KILLED_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.02


def down(path: Path, *, orderly: bool = True) -> bool:
    """Take a lab down and tell whether there was one. Needs no living keeper, and may be done twice.

    Raises LabError: the directory is not a lab's (UMB813), or its keeper does not end (UMB819).
    """
    directory = LabDirectory(path)
    if not directory.path.is_dir() and not keepers(directory):
        return False
    if not is_ours(directory):
        raise LabError(
            "UMB813",
            f"{directory.path} is not the directory of a lab",
            "it holds other files, and none that a lab writes first",
            "name the lab's own directory: umbilical lab down --dir DIR",
        )
    end_keeper(directory, orderly=orderly)
    remove_remains(directory)
    _remove_empty_home(directory)
    return True


def remove_remains(directory: LabDirectory, keep: str | None = None) -> None:
    """Remove what outlives a lab's processes: control groups, and files but for the one named."""
    state = _readable_state(directory)
    if state is not None and state.cgroup is not None:
        _remove_cgroups(state.cgroup)
    remove_content(directory, keep)


def _remove_empty_home(directory: LabDirectory) -> None:
    """The last lab in the default place takes along what was made around it."""
    home = labs_root()
    if directory.path.parent == home:
        with contextlib.suppress(OSError):
            home.rmdir()
            home.parent.rmdir()


def is_ours(directory: LabDirectory) -> bool:
    """Whether it may be a lab's: it has a state, is empty or absent, or half made. Raises LabError: we may not look."""
    try:
        names = os.listdir(directory.path)
    except FileNotFoundError:
        return True
    except OSError as error:
        why = error.strerror or str(error)
        raise LabError("UMB813", f"cannot look into {directory.path}", why, "run it as the lab's owner") from error
    return STATE in names or all(_is_first(name) for name in names)


def _is_first(name: str) -> bool:
    """Tell whether a lab makes it before it has a state file: the lock, and that file's own unfinished form."""
    return name == LOCK or name.startswith(f".{STATE}.")


def end_keeper(directory: LabDirectory, *, orderly: bool) -> None:
    """End whoever holds the lab; when this returns, the kernel has ended all that ran in it."""
    state = _readable_state(directory)
    if orderly and state is not None and state.keeper_pid is not None and state.is_alive():
        _signal(state.keeper_pid, signal.SIGTERM)
        _wait(lambda: not keepers(directory), ORDERLY_SECONDS)

    def is_gone() -> bool:
        # Again and again: one that was just being started shows up only now.
        for pid in keepers(directory):
            _signal(pid, signal.SIGKILL)
        return not keepers(directory) and not is_held(directory)

    if not _wait(is_gone, KILLED_SECONDS):
        why = f"after SIGKILL these are still there: {keepers(directory)}"
        raise LabError("UMB819", f"the lab in {directory.path} does not end", why, "look at them: ps -fp PID")


def keepers(directory: LabDirectory) -> list[int]:
    """Find the lab's keeper by its command line: also one that a killed run left before it could write its pid."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal() and _keeps(int(entry), directory)]


def is_held(directory: LabDirectory) -> bool:
    """Tell whether somebody makes or keeps a lab there."""
    try:
        descriptor = os.open(directory.lock_file, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def remove_content(directory: LabDirectory, keep: str | None = None) -> None:
    """Remove what a lab makes, but for one file; and the directory if nothing else is in it.

    Raises LabError: something inside is not ours, or is mounted there and may be another file system.
    """
    mounted = mounts_below(directory.path)
    if mounted:
        remedy = f"unmount it: umount {mounted[0]}"
        raise LabError("UMB813", f"cannot remove {directory.path}", f"{mounted[0]} is mounted inside", remedy)
    try:
        for name in (*CONTENT, *(entry.name for entry in directory.path.glob(f".{STATE}.*"))):
            if name != keep:
                _remove(directory.path / name)
    except OSError as error:
        remedy = "remove it as its owner, or as root"
        raise LabError("UMB813", f"cannot remove all of {directory.path}", str(error), remedy) from error
    with contextlib.suppress(OSError):
        directory.path.rmdir()


def mounts_below(path: Path) -> list[str]:
    """List what this process sees mounted below a directory. A lab's own mounts are seen by the lab alone."""
    prefix = f"{os.path.realpath(path)}/"
    return [point for point in mount_points(Path("/proc/self/mountinfo")) if point.startswith(prefix)]


def mount_points(mountinfo: Path) -> list[str]:
    """List where a process sees something mounted, by its own mountinfo."""
    lines = mountinfo.read_bytes().splitlines()
    return [os.fsdecode(_unescape(line.split(b" ")[4])) for line in lines]


def _unescape(path: bytes) -> bytes:
    """Undo how proc_pid_mountinfo(5) writes blanks and backslashes: as octal numbers."""
    return re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), path)


def _keeps(pid: int, directory: LabDirectory) -> bool:
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return arguments[-4:] == [b"-m", KEEPER_MODULE.encode(), os.fsencode(directory.path), b""]


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _wait(is_so: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _readable_state(directory: LabDirectory) -> LabState | None:
    with contextlib.suppress(LabError):
        return read_state(directory)
    return None


def _remove_cgroups(name: str) -> None:
    from umbilical.lab import cgroups

    cgroups.remove(name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        _open_tree(path)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _open_tree(path: Path) -> None:
    """Give ourselves back what a node's program closed to its owner; root needs it not, and a user may."""
    path.chmod(0o700)
    for folder, names, _ in os.walk(path):
        for name in names:
            place = os.path.join(folder, name)
            if not os.path.islink(place) and os.lstat(place).st_mode & stat.S_IRWXU != stat.S_IRWXU:
                os.chmod(place, 0o700)
