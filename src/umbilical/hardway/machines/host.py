"""The host of the virtual machines: everything runs there as a command line."""

import os
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final, Protocol

from umbilical.fault import HardwayError
from umbilical.host.commands import CommandResult, CommandRunner, LocalRunner
from umbilical.host.machine_records import Done

COMMAND_SECONDS: Final = 120.0
# The temporary name begins with a dot: a kubelet treats every other file of its directory as a pod.
WRITE: Final = (
    'set -e; mkdir -p -- "${2%/*}"; new=$(mktemp -- "${2%/*}/.${2##*/}.XXXXXX"); trap \'rm -f -- "$new"\' EXIT; '
    'cat >"$new"; chmod -- "$1" "$new"; mv -f -- "$new" "$2"; '
    'if command -v restorecon >/dev/null; then restorecon -- "$2"; fi'
)
"""For sh, with mode and path: writes atomically, never readable by others meanwhile, labelled for SELinux."""


class Host(Protocol):
    def run(
        self, command: Sequence[str], *, stdin: bytes | None = None, timeout_seconds: float = COMMAND_SECONDS
    ) -> Done:
        """Run a command as root, with any exit code. Raises Fault: it did not start, or timed out."""


class ThisHost:
    def __init__(self, runner: CommandRunner | None = None) -> None:
        self._runner = runner or LocalRunner(sudo=os.geteuid() != 0)

    def run(
        self, command: Sequence[str], *, stdin: bytes | None = None, timeout_seconds: float = COMMAND_SECONDS
    ) -> Done:
        return as_done(self._runner.run(command, timeout_seconds, stdin))


def as_done(completed: CommandResult) -> Done:
    return Done(completed.exit_code, completed.stdout.encode(), completed.stderr.encode())


def do(host: Host, *command: str, stdin: bytes | None = None, timeout_seconds: float = COMMAND_SECONDS) -> str:
    """Run a command that must succeed, and return its output. Raises HardwayError: it failed (UMB730)."""
    done = host.run(command, stdin=stdin, timeout_seconds=timeout_seconds)
    if done.exit_code != 0:
        what = f"{PurePosixPath(command[0]).name} failed on the host of the machines"
        raise HardwayError("UMB730", what, done.complaint, f"run it on that host: {shlex.join(command)}")
    return done.text


def holds(host: Host, *command: str) -> bool:
    """Whether a command succeeds."""
    return host.run(command).exit_code == 0


def put(host: Host, path: str, content: bytes, mode: int) -> None:
    """Write a file on the host, atomically."""
    do(host, "sh", "-c", WRITE, "sh", f"{mode:04o}", path, stdin=content)
