"""Start a lab: lock its directory, write its state, start its keeper and wait for it.

An error, or even SIGKILL, on the way leaves nothing running: a keeper ends with the process that started it until it
reads `STAY` from its leash, a pipe.
"""

import contextlib
import fcntl
import json
import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from umbilical.fault import LabError
from umbilical.host.files import make_directory
from umbilical.lab import removal
from umbilical.lab.isolation import Isolation, find_program, search_path
from umbilical.lab.state import LOCK, LabDirectory, LabState, start_time, write_state

READY_SECONDS: Final = 60.0
LOG_LINES_SHOWN: Final = 5
STAY: Final = b"stay\n"
"""Written to the leash: continue when the other end is closed."""


@dataclass
class _Child:
    process: subprocess.Popen[bytes]
    leash: int | None
    """Our end of the pipe; None after `let_go`."""


_children: Final[dict[Path, _Child]] = {}
"""Keepers that this process started and must reap."""


def begin(directory: LabDirectory, state: LabState, isolation: Isolation, *, with_parent: bool) -> LabState:
    """Start the lab that `state` describes; return the state with the keeper's pid.

    With `with_parent` the lab ends with this process.

    Raises LabError: the directory is in use (UMB813), or the keeper did not start (UMB814).
    """
    lock = _claim(directory)
    # The lock is free, so an earlier keeper of this process for the directory has ended.
    reap_keeper(directory)
    try:
        write_state(directory, state)
        alive = _await_keeper(directory, state, _start_keeper(directory, isolation, lock))
        if not with_parent:
            let_go(directory)
    except OSError as error:
        _undo(directory, lock)
        why = f"{error}: the directory was removed or is not writable"
        raise LabError("UMB814", "the lab did not start", why, "try again, or choose another --dir") from error
    except BaseException:
        _undo(directory, lock)
        raise
    os.close(lock)
    return alive


def reap_keeper(directory: LabDirectory) -> None:
    """Reap the ended keeper if this process started it."""
    child = _children.pop(directory.path, None)
    if child is not None:
        child.process.wait()
        if child.leash is not None:
            os.close(child.leash)


def let_go(directory: LabDirectory) -> None:
    """Let a lab that this process started outlive it. Safe to call twice."""
    child = _children.get(directory.path)
    if child is not None and child.leash is not None:
        os.write(child.leash, STAY)
        os.close(child.leash)
        child.leash = None


def _claim(directory: LabDirectory) -> int:
    """Lock the directory, remove the remains of a dead lab, and return the lock's descriptor."""
    if directory.path.exists() and not directory.path.is_dir():
        raise _occupied(directory, "it is not a directory", "choose another --dir")
    if not removal.is_ours(directory):
        raise _occupied(directory, "it is not empty and contains no lab", "choose another --dir")
    is_new = not directory.path.exists()
    try:
        lock = _open_lock(directory)
        try:
            _hold(directory, lock)
            _check_file_system(directory)
            removal.remove_remains(directory, keep=LOCK)
        except BaseException:
            os.close(lock)
            raise
    except BaseException:
        if is_new and not removal.is_held(directory):
            removal.remove_content(directory)
        raise
    return lock


def _open_lock(directory: LabDirectory) -> int:
    try:
        make_directory(directory.path).chmod(0o700)
        return os.open(directory.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _occupied(directory, error.strerror or str(error), "choose another --dir") from error


def _hold(directory: LabDirectory, lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        remedy = f"choose another --name or --dir, or remove the lab: umbilical lab down --dir {directory.path}"
        raise _occupied(directory, "a lab is up there, or is being created", remedy) from None


def _check_file_system(directory: LabDirectory) -> None:
    if os.statvfs(directory.path).f_flag & os.ST_NOEXEC:
        directory.lock_file.unlink()
        why = "its file system is mounted noexec, and nodes run programs from it"
        raise LabError("UMB813", f"no lab was created in {directory.path}", why, "choose another --dir")


def _start_keeper(directory: LabDirectory, isolation: Isolation, lock: int) -> int:
    """Start the keeper; return the pipe on which it reports its start."""
    for folder in (directory.logs, directory.run):
        make_directory(folder)
    # -P: do not import from the working directory.
    python = [sys.executable, "-P", "-m", removal.KEEPER_MODULE, os.fspath(directory.path)]
    command = [find_program("unshare") or "unshare", *isolation.unshare_options, "--", *python]
    leash_read, leash = os.pipe()
    report, report_write = os.pipe()
    log = os.open(directory.keeper_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            command,
            stdin=leash_read,
            stdout=report_write,
            stderr=log,
            env=_environment(),
            cwd="/",
            # Ctrl-C in the terminal reaches this process only.
            start_new_session=True,
            pass_fds=[lock],
        )
    except BaseException:
        os.close(leash)
        os.close(report)
        raise
    finally:
        for descriptor in (leash_read, report_write, log):
            os.close(descriptor)
    _children[directory.path] = _Child(process, leash)
    return report


def _environment() -> dict[str, str]:
    """Programs on nodes can read the keeper's environment, so pass on nothing of the caller's."""
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return {"PATH": search_path(), "LANG": "C.UTF-8", **kept}


def _await_keeper(directory: LabDirectory, state: LabState, report: int) -> LabState:
    try:
        content = json.loads(_read_line(report) or "{}")
    finally:
        os.close(report)
    if "fault" in content:
        raise LabError(*content["fault"])
    if "host_pid" not in content:
        remedy = "inside a container, try on the machine itself: the container may not allow namespaces or mounts"
        raise LabError("UMB814", "the lab's keeper did not start", _last_lines(directory), remedy)
    pid = int(content["host_pid"])
    return write_state(directory, replace(state, keeper_pid=pid, keeper_start=start_time(pid)))


def _read_line(descriptor: int) -> bytes:
    """Read one line; empty after a timeout or if the pipe closes first."""
    line = b""
    deadline = time.monotonic() + READY_SECONDS
    while not line.endswith(b"\n"):
        readable, _, _ = select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))
        chunk = os.read(descriptor, 65536) if readable else b""
        if not chunk:
            return b""
        line += chunk
    return line


def _last_lines(directory: LabDirectory) -> str:
    text = directory.keeper_log.read_text(errors="replace") if directory.keeper_log.exists() else ""
    lines = text.strip().splitlines()[-LOG_LINES_SHOWN:]
    return " | ".join(line.strip() for line in lines) or f"no report after {READY_SECONDS:g} s, and its log is empty"


def _undo(directory: LabDirectory, lock: int) -> None:
    os.close(lock)
    removal.end_keeper(directory, orderly=False)
    reap_keeper(directory)
    with contextlib.suppress(LabError):
        removal.remove_content(directory)


def _occupied(directory: LabDirectory, why: str, remedy: str) -> LabError:
    return LabError("UMB813", f"no lab was created in {directory.path}", why, remedy)
