"""HAProxy on the lab's host node: its config is checked first, reloads keep connections, and statistics can be read.

It runs as master and worker. On a reload the master starts a new worker that inherits the listening sockets, and the
old worker finishes its connections.
"""

import hashlib
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from umbilical.fault import LabError
from umbilical.hardway.artifacts.infrastructure.places import OWN_PLACES, balancer_command
from umbilical.host.commands import faults, parse_stats
from umbilical.host.machine_records import BackendServer
from umbilical.host.waiting import NotYet
from umbilical.lab import node_root
from umbilical.lab.hardway.names import HOST
from umbilical.lab.waiting import wait

if TYPE_CHECKING:
    from umbilical.lab.lab import Lab

PROCESS: Final = "haproxy"
FOLDER: Final = "/srv/balancer"
CONFIG: Final = f"{FOLDER}/{OWN_PLACES.config}"
CANDIDATE: Final = "candidate.cfg"
FIRST: Final = f"{FOLDER}/first.cfg"
"""The last config of `build`: while it is active, no later stage has set another one."""
MASTER_SOCKET: Final = "master.sock"
READY_SECONDS: Final = 60.0
ASK_SECONDS: Final = 10.0
MAX_ANSWER_BYTES: Final = 1 << 20
STATS_SOCKET: Final = OWN_PLACES.stats_socket.removeprefix("unix@")
AT_WORK: Final = f"{FOLDER}/at-work"
"""Hash of what the running worker has read."""
_BIND: Final = re.compile(r"^\s*bind\s+(\S+)", re.MULTILINE)
_LISTENERS: Final = ("ss", "--no-header", "--listening", "--tcp", "--numeric")


@dataclass(frozen=True)
class BalancerConfigCheck:
    """Result of `haproxy -c`."""

    is_good: bool
    """No error and no warning."""
    report: str


class LabBalancer:
    def __init__(self, lab: "Lab") -> None:
        self._lab = lab

    @property
    def is_running(self) -> bool:
        return any((one.node, one.name, one.exit_code) == (HOST, PROCESS, None) for one in self._lab.processes())

    def write_files(self, files: Mapping[str, bytes]) -> None:
        """Write the files that configs name: CA certificates."""
        for name, content in files.items():
            self._lab.write(HOST, f"{FOLDER}/{name}", content, 0o644)

    def use(self, config: bytes) -> None:
        """Activate this config.

        Raises LabError: HAProxy rejected it (UMB735) and nothing changed, or did not start in time (UMB850).
        """
        wanted = self._fingerprint(config)
        if self.is_running and self._content(AT_WORK) == wanted:
            return
        self._refuse_unless_good(config)
        self._lab.write(HOST, CONFIG, config, 0o644)
        if self.is_running:
            self._reload()
        else:
            self._start()
        self._lab.write(HOST, AT_WORK, wanted, 0o644)

    def begin(self, config: bytes) -> None:
        """Use this config unless a later stage has set another one; that one stays active."""
        present = self.config()
        is_first = not present or present == self._content(FIRST)
        self.use(config if is_first else present)
        self._lab.write(HOST, FIRST, config, 0o644)

    def config(self) -> bytes:
        """Return the active config; empty if there is none."""
        return self._content(CONFIG)

    def _fingerprint(self, config: bytes) -> bytes:
        """Hash a config with the files that it may read: HAProxy reads them only at start."""
        folder = node_root.locate(self._lab.directory.node_root(HOST), FOLDER)
        total = hashlib.sha256(config)
        for path in sorted(folder.glob("*.crt")):
            total.update(path.read_bytes())
        return total.hexdigest().encode()

    def _content(self, path: str) -> bytes:
        return self._lab.read(HOST, path) if self._lab.exists(HOST, path) else b""

    def verdict(self, config: bytes) -> BalancerConfigCheck:
        self._lab.write(HOST, f"{FOLDER}/{CANDIDATE}", config, 0o644)
        done = self._lab.exec(HOST, ["haproxy", "-c", "-C", FOLDER, "-f", CANDIDATE])
        found = faults(done.exit_code, (done.stdout + done.stderr).decode(errors="replace"))
        return BalancerConfigCheck(not found, found or "haproxy -c reported no problem")

    def bound(self) -> list[str]:
        """Return the addresses and ports that the active config binds."""
        return _BIND.findall(self.config().decode(errors="replace"))

    def listening(self) -> set[str]:
        rows = self._lab.exec(HOST, _LISTENERS).check().text.splitlines()
        return {row.split()[3] for row in rows if len(row.split()) > 3}

    def servers(self) -> list[BackendServer]:
        """Return the state of every server of every backend. Raises LabError: UMB736, no answer."""
        return parse_stats(self._query(STATS_SOCKET, "show stat"))

    def _refuse_unless_good(self, config: bytes) -> None:
        verdict = self.verdict(config)
        if not verdict.is_good:
            remedy = "umbilical stage lint (rules HA-*); the active config was not changed"
            raise LabError("UMB735", "HAProxy rejected the load balancer's config", verdict.report, remedy)

    def _start(self) -> None:
        self._lab.start(HOST, PROCESS, balancer_command(FOLDER), restarts=True)
        wait("HAProxy", self._look_for_worker, READY_SECONDS, 0.05)

    def _reload(self) -> None:
        before = self._worker()
        self._query(MASTER_SOCKET, "reload")

        def look() -> None:
            self._look_for_worker()
            if self._worker() == before:
                raise NotYet("the new worker has not started")

        wait("HAProxy's new worker", look, READY_SECONDS, 0.05)

    def _look_for_worker(self) -> None:
        if not self.is_running:
            lines = self._lab.log(HOST, PROCESS).strip().splitlines()[-3:]
            log = self._lab.directory.log_file(HOST, PROCESS)
            raise LabError("UMB736", "HAProxy exited", " | ".join(lines) or "its log is empty", f"tail {log}")
        missing = [place for place in self.bound() if place not in self.listening()]
        if missing or self._worker() is None:
            raise NotYet(f"no process listens on {', '.join(missing)}" if missing else "there is no worker yet")

    def _worker(self) -> str | None:
        """Return the pid of the worker that accepts new connections."""
        try:
            return parse_worker(self._query(MASTER_SOCKET, "show proc"))
        except LabError:
            # The master does not answer while it restarts.
            return None

    def _query(self, name: str, command: str) -> str:
        place = node_root.locate(self._lab.directory.node_root(HOST), FOLDER) / name
        try:
            return _converse(place, command)
        except OSError as error:
            why = f"{FOLDER}/{name} on {HOST}: {error.strerror or error}"
            raise LabError("UMB736", "the load balancer did not answer", why, "umbilical stage run 02") from error


def parse_worker(text: str) -> str | None:
    """Find the worker in the output of `show proc`; old workers follow under their own heading."""
    current = text.partition("# old workers")[0]
    found = re.search(r"^(\d+)\s+worker\b", current, re.MULTILINE)
    return found[1] if found else None


def _converse(place: "os.PathLike[str]", command: str) -> str:
    folder, name = os.path.split(place)
    # By a descriptor: the path may be longer than a socket address allows.
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ASK_SECONDS)
            connection.connect(f"/proc/self/fd/{descriptor}/{name}")
            connection.sendall(f"{command}\n".encode())
            # Else the master waits for more commands.
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as stream:
                return stream.read(MAX_ANSWER_BYTES).decode(errors="replace")
    finally:
        os.close(descriptor)
