"""Two haproxy processes in the tunnel's shape: Unix socket in, TLS with client certificates between, TCP out.

They know no dial: every connection on the socket leads to one endpoint, and has a TLS connection of its own. What they
carry is what a machine gives to programs of this shape, so it stands beside the bulk rows as their limit.
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
    """Return the program, or None where it is not installed; it then has no column in the report."""
    found = shutil.which(PROGRAM, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    return Path(found) if found else None


def version(program: Path) -> str:
    shown = subprocess.run(
        [program, "-v"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_SECONDS, check=False
    )
    words = shown.stdout.split()
    return " ".join(words[:3]) if words else "of unknown version"


class Relay(Carrier):
    """The near process plays the server's part, the far one the agent's."""

    def __init__(self, program: Path, pki: Pki, folder: Path) -> None:
        super().__init__(LIMIT, folder)
        self._program = program
        self._pki = pki
        self._between = free_port()
        self._endpoint = free_port()

    @property
    def entrance(self) -> list[str]:
        return ["--mode=direct", f"--uds={self._socket}", f"--listen=127.0.0.1:{self._endpoint}"]

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
            f"listen near\n    bind unix@{self._socket}\n"
            f"    server far 127.0.0.1:{self._between} ssl verify required ca-file {authority} crt {pem}\n"
        )

    def _far(self) -> str:
        pem, authority = self._pem("server", self._pki.server), self._pki.authority
        return (
            f"listen far\n    bind 127.0.0.1:{self._between} ssl crt {pem} ca-file {authority} verify required\n"
            f"    server endpoint 127.0.0.1:{self._endpoint}\n"
        )

    def _pem(self, name: str, pair: tuple[Path, Path]) -> Path:
        """Certificate and key in one file, which is how haproxy wants them."""
        folder = self._pki.authority.parent
        return write_file(folder / f"haproxy-{name}.pem", b"".join(path.read_bytes() for path in pair), overwrite=True)

    def _far_listens(self) -> bool:
        with socket.create_connection(("127.0.0.1", self._between), timeout=1.0):
            return True

    def _near_listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._socket))
            return True
