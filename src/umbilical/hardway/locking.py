"""One writer at a time for the record of a cluster; who comes second is told who was first."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from umbilical.fault import HardwayError
from umbilical.hardway.ledger import RECORD
from umbilical.host.files import make_directory

LOCK: Final = "lock"
# Who only asks for the holder has it for an instant.
TRIES: Final = 10
TRY_SECONDS: Final = 0.02


@dataclass(frozen=True)
class Holder:
    pid: int
    command: str
    since: str


@contextmanager
def locked(folder: Path, command: str, since: str) -> Iterator[None]:
    """Hold the lock of a cluster's directory. It ends with the process, however that ends.

    Raises:
        HardwayError: somebody else has it (UMB720), or it cannot be had by this user (UMB721).
    """
    descriptor = _open(folder / RECORD / LOCK)
    try:
        if not _take_soon(descriptor):
            raise _taken(folder)
        _sign(descriptor, Holder(os.getpid(), command, since))
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def holder(folder: Path) -> Holder | None:
    """Say who works on this cluster now, if anybody does."""
    path = folder / RECORD / LOCK
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _take(descriptor, fcntl.LOCK_SH):
            return None
        return _read(path)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    # Close-on-exec: a program that outlives us must not keep the lock for us.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        make_directory(path.parent)
        return os.open(path, flags, 0o600)
    except OSError as error:
        why, remedy = error.strerror or str(error), "run it as the owner of the directory: mostly root"
        raise HardwayError("UMB721", f"cannot write {path}", why, remedy) from None


def _take(descriptor: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take_soon(descriptor: int) -> bool:
    for _ in range(TRIES):
        if _take(descriptor):
            return True
        time.sleep(TRY_SECONDS)
    return False


def _sign(descriptor: int, who: Holder) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(vars(who)).encode() + b"\n", 0)


def _read(path: Path) -> Holder:
    """What the file says may be of a moment ago: it is signed after it is locked."""
    try:
        content = json.loads(path.read_bytes())
        return Holder(int(content["pid"]), str(content["command"]), str(content["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Holder(0, "somebody", "")


def _taken(folder: Path) -> HardwayError:
    who = _read(folder / RECORD / LOCK)
    why = f"`{who.command}` (pid {who.pid}) has worked on it since {who.since}" if who.pid else "another run has it"
    return HardwayError("UMB720", f"{folder} is locked", why, "follow it with `umbilical stage watch`, or wait for it")
