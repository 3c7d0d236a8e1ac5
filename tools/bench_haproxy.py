"""Two haproxy processes in place of a tunnel: a Unix socket, mutual TLS between them, TCP to the endpoint.

They have no dials: every connection goes to one endpoint over its own TLS connection. Their rate is what the machine
allows for such programs, so it is shown in the bulk rows as the limit.
"""

import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final

from bench_rows import LIMIT
from bench_tunnel import POLL_SECONDS, READY_SECONDS, Carrier, Pki, free_port
from umbilical.host.files import write_file

PROGRAM: Final = "haproxy"
VERSION_TIMEOUT_SECONDS: Final = 10
COMMON: Final = """\
global
    nbthread 1
    maxconn 1000
    tune.bufsize 262144
defaults
    mode tcp
    timeout connect 5s
    timeout client 10m
    timeout server 10m
"""


def find() -> Path | None:
    """Return the program; None if it is not installed, then the report has no column for it."""
    found = shutil.which(PROGRAM, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    return Path(found) if found else None


def version(program: Path) -> str:
    shown = subprocess.run(
        [program, "-v"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_SECONDS, check=False
    )
    words = shown.stdout.split()
    return " ".join(words[:3]) if words else "of unknown version"


class Relay(Carrier):
    """The near process is in place of the server, the far one in place of the agent."""

    def __init__(self, program: Path, pki: Pki, folder: Path) -> None:
        super().__init__(LIMIT, folder)
        self._program = program
        self._pki = pki
        self._between = free_port()
        self._endpoint = free_port()

    @property
    def entrance(self) -> list[str]:
        return ["--mode=direct", f"--uds={self.socket_path}", f"--listen=127.0.0.1:{self._endpoint}"]

    def _begin(self) -> None:
        self._start("agent", self._far())
        self._start("server", self._near())
        self._children["agent"].wait_ready(self._far_listens, READY_SECONDS, POLL_SECONDS)
        self._children["server"].wait_ready(self._near_listens, READY_SECONDS, POLL_SECONDS)

    def _start(self, role: str, listen: str) -> None:
        config = write_file(self._folder / f"{role}.cfg", (COMMON + listen).encode())
        self._launch(role, f"haproxy as {role}", [self._program, "-db", "-f", config], {})

    def _near(self) -> str:
        pem, authority = self._pem("client", self._pki.agent), self._pki.authority
        return (
            f"listen near\n    bind unix@{self.socket_path}\n"
            f"    server far 127.0.0.1:{self._between} ssl verify required ca-file {authority} crt {pem}\n"
        )

    def _far(self) -> str:
        pem, authority = self._pem("server", self._pki.server), self._pki.authority
        return (
            f"listen far\n    bind 127.0.0.1:{self._between} ssl crt {pem} ca-file {authority} verify required\n"
            f"    server endpoint 127.0.0.1:{self._endpoint}\n"
        )

    def _pem(self, name: str, pair: tuple[Path, Path]) -> Path:
        """Return a file with certificate and key, as haproxy needs it."""
        folder = self._pki.authority.parent
        return write_file(folder / f"haproxy-{name}.pem", b"".join(path.read_bytes() for path in pair), overwrite=True)

    def _far_listens(self) -> bool:
        with socket.create_connection(("127.0.0.1", self._between), timeout=1.0):
            return True

    def _near_listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket_path))
            return True
