"""Remove a lab in any state: its processes, its cgroups, and its files."""

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
# The keeper gives its programs 5 s, then ends itself.
ORDERLY_SECONDS: Final = 8.0
KILLED_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.02


def down(path: Path, *, orderly: bool = True) -> bool:
    """Remove a lab, with or without a running keeper; return whether there was one. Safe to call twice.

    Raises LabError: the directory contains something else (UMB813), or the keeper does not end (UMB819).
    """
    directory = LabDirectory(path)
    if not directory.path.is_dir() and not keepers(directory):
        return False
    if not is_ours(directory):
        raise LabError(
            "UMB813",
            f"{directory.path} is not the directory of a lab",
            "it contains other files and no state file of a lab",
            "give the lab's directory: umbilical lab down --dir DIR",
        )
    end_keeper(directory, orderly=orderly)
    remove_remains(directory)
    _remove_empty_home(directory)
    return True


def remove_remains(directory: LabDirectory, keep: str | None = None) -> None:
    """Remove what outlives a lab's processes: control groups and files, except `keep`."""
    state = _readable_state(directory)
    if state is not None and state.cgroup is not None:
        _remove_cgroups(state.cgroup)
    remove_content(directory, keep)


def _remove_empty_home(directory: LabDirectory) -> None:
    """After the last lab, remove the empty default directories too."""
    home = labs_root()
    if directory.path.parent == home:
        with contextlib.suppress(OSError):
            home.rmdir()
            home.parent.rmdir()


def is_ours(directory: LabDirectory) -> bool:
    """Return whether it is a lab's directory, empty, missing or half created. Raises LabError: no permission."""
    try:
        names = os.listdir(directory.path)
    except FileNotFoundError:
        return True
    except OSError as error:
        why = error.strerror or str(error)
        raise LabError(
            "UMB813", f"no permission to read {directory.path}", why, "run the command as the lab's owner"
        ) from error
    return STATE in names or all(_is_first(name) for name in names)


def _is_first(name: str) -> bool:
    """Return whether a lab creates this name before its state file: the lock, and the temporary state file."""
    return name == LOCK or name.startswith(f".{STATE}.")


def end_keeper(directory: LabDirectory, *, orderly: bool) -> None:
    """End the keeper; when this returns, all processes of the lab have ended."""
    state = _readable_state(directory)
    if orderly and state is not None and state.keeper_pid is not None and state.is_alive():
        _signal(state.keeper_pid, signal.SIGTERM)
        _wait(lambda: not keepers(directory), ORDERLY_SECONDS)

    def is_gone() -> bool:
        # Repeat: a keeper that was just started may appear only now.
        for pid in keepers(directory):
            _signal(pid, signal.SIGKILL)
        return not keepers(directory) and not is_held(directory)

    if not _wait(is_gone, KILLED_SECONDS):
        why = f"these processes still exist after SIGKILL: {keepers(directory)}"
        raise LabError("UMB819", f"the lab in {directory.path} did not end", why, "ps -fp PID")


def keepers(directory: LabDirectory) -> list[int]:
    """Find the lab's keepers by command line, including one whose pid was never written."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal() and _keeps(int(entry), directory)]


def is_held(directory: LabDirectory) -> bool:
    """Return whether a lab is up there or being created."""
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
    """Remove a lab's files except `keep`, and the directory if it is empty then.

    Raises LabError: a file cannot be removed, or something is mounted inside.
    """
    mounted = mounts_below(directory.path)
    if mounted:
        remedy = f"umount {mounted[0]}"
        raise LabError("UMB813", f"{directory.path} was not removed", f"{mounted[0]} is mounted inside", remedy)
    try:
        for name in (*CONTENT, *(entry.name for entry in directory.path.glob(f".{STATE}.*"))):
            if name != keep:
                _remove(directory.path / name)
    except OSError as error:
        remedy = "remove it as its owner, or as root"
        raise LabError("UMB813", f"{directory.path} was not removed completely", str(error), remedy) from error
    with contextlib.suppress(OSError):
        directory.path.rmdir()


def mounts_below(path: Path) -> list[str]:
    """List the mounts below a directory that this process sees; those of a running lab are not visible here."""
    prefix = f"{os.path.realpath(path)}/"
    return [point for point in mount_points(Path("/proc/self/mountinfo")) if point.startswith(prefix)]


def mount_points(mountinfo: Path) -> list[str]:
    """List the mount points of a process from its mountinfo."""
    lines = mountinfo.read_bytes().splitlines()
    return [os.fsdecode(_unescape(line.split(b" ")[4])) for line in lines]


def _unescape(path: bytes) -> bytes:
    """Decode the octal escapes of proc_pid_mountinfo(5)."""
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
    """Restore the owner's permissions on directories, which programs of a node may have removed."""
    path.chmod(0o700)
    for folder, names, _ in os.walk(path):
        for name in names:
            place = os.path.join(folder, name)
            if not os.path.islink(place) and os.lstat(place).st_mode & stat.S_IRWXU != stat.S_IRWXU:
                os.chmod(place, 0o700)
