"""Run a test's function in namespaces of its own, as root or as an ordinary user in a user namespace.

The function runs in a forked child that is process 1 of a pid namespace, with its own network, mounts, host name and
/proc, and an empty tmpfs at `SCRATCH`. What it returns is pickled; what it raises fails the test. When it ends, or the
test does, the kernel takes everything away.
"""

import ctypes
import os
import pickle
import select
import signal
import sys
import traceback
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from umbilical.host import namespaces
from umbilical.host.namespaces import NamespaceKind

Result = TypeVar("Result")
SCRATCH: Final = Path("/mnt")
NOBODY: Final = 65534
PR_SET_DUMPABLE: Final = 4
SECONDS: Final = 100.0


class World(Enum):
    ROOT = "root"
    ORDINARY = "ordinary user"


def run_in(world: World, call: Callable[[], Result], timeout_seconds: float = SECONDS) -> Result:
    """Call in a fresh world and return what it returned; needs root, which an ordinary user is made from."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _settle(world, call, writing)
    os.close(writing)
    try:
        outcome = _read(reading, timeout_seconds)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
    assert outcome, "the child ended without a word"
    failure, result = pickle.loads(outcome)
    if failure is not None:
        raise AssertionError(failure)
    return result  # type: ignore[no-any-return]


def _read(descriptor: int, timeout_seconds: float) -> bytes:
    content = bytearray()
    while True:
        ready, _, _ = select.select([descriptor], [], [], timeout_seconds)
        if not ready:
            raise TimeoutError(f"no word from the child for {timeout_seconds:g} s")
        piece = os.read(descriptor, 65536)
        if not piece:
            return bytes(content)
        content += piece


def _settle(world: World, call: Callable[[], Result], writing: int) -> NoReturn:
    """Enter the world in the child; its own child is process 1 there and calls."""
    try:
        if world is World.ORDINARY:
            _become_ordinary()
        namespaces.unshare(NamespaceKind.MOUNT | NamespaceKind.NETWORK | NamespaceKind.PID | NamespaceKind.UTS)
        namespaces.make_private()
        first = os.fork()
    except BaseException:
        _tell(writing, (traceback.format_exc(), None))
        os._exit(1)
    if first == 0:
        _live(call, writing)
    os.close(writing)
    os.waitpid(first, 0)
    os._exit(0)


def _live(call: Callable[[], Result], writing: int) -> NoReturn:
    try:
        namespaces.die_with_parent()
        namespaces.mount("proc", "/proc", "proc")
        namespaces.mount("tmpfs", SCRATCH, "tmpfs", options="mode=755")
        os.chdir(SCRATCH)
        outcome: tuple[str | None, Result | None] = (None, call())
    except BaseException:
        outcome = (traceback.format_exc(), None)
    _tell(writing, outcome)
    sys.stdout.flush()
    os._exit(0)


def _tell(writing: int, outcome: object) -> None:
    with os.fdopen(writing, "wb") as pipe:
        pickle.dump(outcome, pipe)


def _become_ordinary() -> None:
    namespaces.unshare(NamespaceKind.MOUNT)
    namespaces.make_private()
    uncover(Path(sys.base_prefix), Path(sys.prefix), Path(__file__).resolve().parent.parent.parent)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    # The kernel hides /proc/self of a process that changed its user; an exec would have ended that.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    namespaces.unshare(NamespaceKind.USER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {NOBODY} 1")
    Path("/proc/self/gid_map").write_text(f"0 {NOBODY} 1")


def uncover(*folders: Path) -> None:
    """Let everybody reach these folders even below a closed home, for this mount namespace only."""
    for folder in folders:
        closed = [parent for parent in reversed(folder.parents) if not parent.stat().st_mode & 0o001]
        if closed:
            _show_below_a_tmpfs(closed[0], folder)


def _show_below_a_tmpfs(closed: Path, folder: Path) -> None:
    namespaces.mount("tmpfs", SCRATCH, "tmpfs", options="mode=755")
    staged = SCRATCH / "staged"
    staged.mkdir()
    namespaces.bind(folder, staged)
    namespaces.mount("tmpfs", closed, "tmpfs", options="mode=755")
    folder.mkdir(parents=True)
    namespaces.bind(staged, folder)
    namespaces.unmount(SCRATCH, is_lazy=True)
