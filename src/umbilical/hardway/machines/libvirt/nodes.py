"""Nodes by ssh, as the user core with sudo. Their host keys are new at each installation, and kept from then on."""

import base64
import binascii
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from umbilical.fault import HardwayError
from umbilical.hardway.config.cluster import Node
from umbilical.hardway.machines.libvirt.host import WRITE, as_done
from umbilical.host.commands import Runner, SshRunner
from umbilical.host.files import make_directory
from umbilical.host.machine_records import Done

KNOWN_HOSTS: Final = "known-hosts"
"""A folder below the record with a list for each node, so that one can be forgotten also where names are hashed."""
READ_SECONDS: Final = 60.0
_NO_FILE: Final = 44
# As text: a file may hold any bytes, and the way back is for text.
READ: Final = f'test -f "$1" || exit {_NO_FILE}; exec base64 -w0 -- "$1"'

Connect = Callable[[Node], Runner]


def connect_by_ssh(record: Path, key: str) -> Connect:
    """Return what makes runners for nodes."""

    def connect(node: Node) -> Runner:
        private = Path(key).expanduser() if key else None
        known_hosts = make_directory(record / KNOWN_HOSTS) / node.id
        return SshRunner(str(node.address), key=private, sudo=True, known_hosts=known_hosts)

    return connect


class Nodes:
    def __init__(self, connect: Connect, known_hosts: Path) -> None:
        self._connect = connect
        self._known_hosts = known_hosts

    def run(self, node: Node, command: Sequence[str], stdin: bytes | None, timeout_seconds: float) -> Done:
        return as_done(self._connect(node).run(command, timeout_seconds, stdin))

    def read(self, node: Node, path: str) -> bytes | None:
        done = self.run(node, ["sh", "-c", READ, "sh", path], None, READ_SECONDS)
        if done.exit_code == _NO_FILE:
            return None
        try:
            return base64.b64decode(_checked(node, done, f"cat {shlex.quote(path)}").stdout, validate=True)
        except binascii.Error:
            why = "what came back is no base64"
            raise HardwayError("UMB734", f"cannot read {path} on {node.id}", why, "try it again") from None

    def write(self, node: Node, path: str, content: bytes, mode: int) -> None:
        done = self.run(node, ["sh", "-c", WRITE, "sh", f"{mode:04o}", path], content, READ_SECONDS)
        _checked(node, done, f"ls -ld {shlex.quote(path)}")

    def forget(self, node: Node) -> None:
        """Forget the host key of a machine that is gone: its successor has another one."""
        (self._known_hosts / node.id).unlink(missing_ok=True)


def _checked(node: Node, done: Done, by_hand: str) -> Done:
    if done.exit_code != 0:
        what = f"a command failed on {node.id}"
        raise HardwayError("UMB734", what, done.complaint, f"ssh core@{node.address} sudo {by_hand}")
    return done
