"""HAProxy on the host's twin: checked before it is believed, reloaded without losing a connection, asked how it is.

It runs as master and worker. At a reload the master starts a new worker that inherits the listening sockets, and the
old worker serves the connections that it has to their end.
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
"""What `build` asked for last: as long as it is at work, no later stage has set another one."""
MASTER_SOCKET: Final = "master.sock"
READY_SECONDS: Final = 60.0
ASK_SECONDS: Final = 10.0
MAX_ANSWER_BYTES: Final = 1 << 20
STATS_SOCKET: Final = OWN_PLACES.stats_socket.removeprefix("unix@")
AT_WORK: Final = f"{FOLDER}/at-work"
"""What the worker that runs has read, by its hash."""
_BIND: Final = re.compile(r"^\s*bind\s+(\S+)", re.MULTILINE)
_LISTENERS: Final = ("ss", "--no-header", "--listening", "--tcp", "--numeric")


@dataclass(frozen=True)
class Verdict:
    """What `haproxy -c` says of a config."""

    is_good: bool
    """No error and no warning."""
    words: str


class Balancer:
    def __init__(self, lab: "Lab") -> None:
        self._lab = lab

    @property
    def is_running(self) -> bool:
        return any((one.node, one.name, one.exit_code) == (HOST, PROCESS, None) for one in self._lab.processes())

    def lay(self, files: Mapping[str, bytes]) -> None:
        """Write what configs name: certificates of authorities."""
        for name, content in files.items():
            self._lab.write(HOST, f"{FOLDER}/{name}", content, 0o644)

    def use(self, config: bytes) -> None:
        """Have this config at work, whatever was before.

        Raises LabError: HAProxy finds fault with it (UMB735), and nothing has changed; or it does not come up (UMB850).
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
        """Use this config unless a later stage has set another one; that stays at work."""
        present = self.config()
        is_first = not present or present == self._content(FIRST)
        self.use(config if is_first else present)
        self._lab.write(HOST, FIRST, config, 0o644)

    def config(self) -> bytes:
        """Return the config at work; empty if there is none."""
        return self._content(CONFIG)

    def _fingerprint(self, config: bytes) -> bytes:
        """Name a config together with the files that it may read: HAProxy looks at them once."""
        folder = node_root.locate(self._lab.directory.node_root(HOST), FOLDER)
        total = hashlib.sha256(config)
        for path in sorted(folder.glob("*.crt")):
            total.update(path.read_bytes())
        return total.hexdigest().encode()

    def _content(self, path: str) -> bytes:
        return self._lab.read(HOST, path) if self._lab.exists(HOST, path) else b""

    def verdict(self, config: bytes) -> Verdict:
        self._lab.write(HOST, f"{FOLDER}/{CANDIDATE}", config, 0o644)
        done = self._lab.exec(HOST, ["haproxy", "-c", "-C", FOLDER, "-f", CANDIDATE])
        found = faults(done.exit_code, (done.stdout + done.stderr).decode(errors="replace"))
        return Verdict(not found, found or "it is taken without a word")

    def bound(self) -> list[str]:
        """What the config at work binds: address and port."""
        return _BIND.findall(self.config().decode(errors="replace"))

    def listening(self) -> set[str]:
        rows = self._lab.exec(HOST, _LISTENERS).check().text.splitlines()
        return {row.split()[3] for row in rows if len(row.split()) > 3}

    def servers(self) -> list[BackendServer]:
        """Ask how every server of every backend is. Raises LabError: UMB736, it does not answer."""
        return parse_stats(self._ask(STATS_SOCKET, "show stat"))

    def _refuse_unless_good(self, config: bytes) -> None:
        verdict = self.verdict(config)
        if not verdict.is_good:
            remedy = "umbilical stage lint: rules HA-*; the config at work was left as it is"
            raise LabError("UMB735", "the load balancer's config is not taken", verdict.words, remedy)

    def _start(self) -> None:
        self._lab.start(HOST, PROCESS, balancer_command(FOLDER))
        wait("HAProxy", self._look_for_worker, READY_SECONDS, 0.05)

    def _reload(self) -> None:
        before = self._worker()
        self._ask(MASTER_SOCKET, "reload")

        def look() -> None:
            self._look_for_worker()
            if self._worker() == before:
                raise NotYet("the old worker is the newest")

        wait("HAProxy's new worker", look, READY_SECONDS, 0.05)

    def _look_for_worker(self) -> None:
        if not self.is_running:
            lines = self._lab.log(HOST, PROCESS).strip().splitlines()[-3:]
            log = self._lab.directory.log_file(HOST, PROCESS)
            raise LabError("UMB736", "HAProxy ended", " | ".join(lines) or "its log is empty", f"read {log}")
        missing = [place for place in self.bound() if place not in self.listening()]
        if missing or self._worker() is None:
            raise NotYet(f"nobody listens on {', '.join(missing)}" if missing else "no worker yet")

    def _worker(self) -> str | None:
        """Return the number of the worker that takes new connections."""
        try:
            return parse_worker(self._ask(MASTER_SOCKET, "show proc"))
        except LabError:
            # While the master begins anew, nobody answers.
            return None

    def _ask(self, name: str, question: str) -> str:
        place = node_root.locate(self._lab.directory.node_root(HOST), FOLDER) / name
        try:
            return _converse(place, question)
        except OSError as error:
            why = f"{FOLDER}/{name} on {HOST}: {error.strerror or error}"
            raise LabError("UMB736", "the load balancer does not answer", why, "umbilical stage run 02") from error


def parse_worker(text: str) -> str | None:
    """Read what the master says in `show proc`: workers first, and old ones below a heading of their own."""
    current = text.partition("# old workers")[0]
    found = re.search(r"^(\d+)\s+worker\b", current, re.MULTILINE)
    return found[1] if found else None


def _converse(place: "os.PathLike[str]", question: str) -> str:
    folder, name = os.path.split(place)
    # By a descriptor: the whole path may be longer than a socket's address can be.
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ASK_SECONDS)
            connection.connect(f"/proc/self/fd/{descriptor}/{name}")
            connection.sendall(f"{question}\n".encode())
            # The master goes on waiting for questions otherwise.
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as stream:
                return stream.read(MAX_ANSWER_BYTES).decode(errors="replace")
    finally:
        os.close(descriptor)
