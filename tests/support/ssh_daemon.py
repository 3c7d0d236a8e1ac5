"""A real sshd on loopback with keys made for the test. Whoever uses it is marked `@pytest.mark.real(*PROGRAMS)`."""

import getpass
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from umbilical.host.commands import SshRunner
from umbilical.host.processes import run, start

PROGRAMS: Final = ("sshd", "ssh", "ssh-keygen")


@dataclass(frozen=True)
class SshDaemon:
    folder: Path
    port: int

    @property
    def key(self) -> Path:
        """Whose owner is let in as the user who runs the tests."""
        return self.folder / "key"

    @property
    def sudo_log(self) -> Path:
        return self.folder / "sudo.log"

    def runner(self, **options: Any) -> SshRunner:
        settings = {"user": getpass.getuser(), "key": self.key, "port": self.port, **options}
        return SshRunner("127.0.0.1", **settings)


@contextmanager
def ssh_daemon(folder: Path) -> Iterator[SshDaemon]:
    for name in ("key", "host", "other"):
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], 30)
    (folder / "authorized").write_bytes((folder / "key.pub").read_bytes())
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # a root sshd refuses to start without its empty directory
    program = shutil.which("sshd")
    assert program is not None
    configuration = folder / "sshd_config"
    configuration.write_text(_configuration(folder, port))
    with start([program, "-D", "-e", "-f", str(configuration)], folder / "sshd.log", name="sshd") as daemon:
        daemon.wait_ready(lambda: _accepts(port), 20)
        yield SshDaemon(folder, port)


def stand_in_for_sudo(folder: Path) -> Path:
    """Make a `sudo` that writes down what it is asked and does it: the real one wants a policy and a user database."""
    script = folder / "bin" / "sudo"
    script.parent.mkdir()
    script.write_text(f"""#!/bin/sh\necho "$*" >>'{folder}/sudo.log'\nshift 2\nexec "$@"\n""")
    script.chmod(0o755)
    return script.parent


def _configuration(folder: Path, port: int) -> str:
    settings = [
        "ListenAddress 127.0.0.1",
        f"Port {port}",
        f'HostKey "{folder / "host"}"',
        f'AuthorizedKeysFile "{folder / "authorized"}"',
        f'SetEnv PATH="{stand_in_for_sudo(folder)}:{os.environ["PATH"]}"',
        "PidFile none",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
    ]
    return "\n".join(settings) + "\n"


def _accepts(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), 5):
        return True
