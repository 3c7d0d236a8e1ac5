"""Runs commands with a timeout, locally or on another machine with `ssh`; and reads what bash and HAProxy report about
a file, without running the file."""

import csv
import io
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol

from umbilical.fault import HostError
from umbilical.host.machine_records import BackendServer
from umbilical.host.processes import run

CONNECT_SECONDS: Final = 10
# Exit status of ssh(1) when ssh itself failed; otherwise it is the remote command's.
SSH_FAILED: Final = 255
SSH_PORT: Final = 22


@dataclass(frozen=True)
class CommandResult:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0


class CommandRunner(Protocol):
    """Runs commands on one machine."""

    def run(self, command: Sequence[str], timeout_seconds: float, stdin: bytes | None = None) -> CommandResult:
        """Run a command; any exit code is a result. Raises HostError: it could not start, or timed out."""


class LocalRunner:
    def __init__(self, *, sudo: bool = False) -> None:
        self._prefix = _sudo_prefix(sudo)

    def run(self, command: Sequence[str], timeout_seconds: float, stdin: bytes | None = None) -> CommandResult:
        return _run([*self._prefix, *command], command[0], timeout_seconds, stdin)


class SshRunner:
    """Runs commands on another machine; a context manager that owns a temporary known_hosts file.

    A bootstrap machine creates its host keys at first boot and lives about an hour, so its keys cannot be known before,
    and a line in the user's known_hosts would block the next machine at that address. So the first key is accepted
    (accept-new) into a temporary file, and a different key later in the session is refused.
    """

    def __init__(
        self,
        host: str,
        user: str = "core",
        key: Path | None = None,
        port: int = SSH_PORT,
        *,
        sudo: bool = False,
        known_hosts: Path | None = None,
    ) -> None:
        # ssh reads a leading hyphen as an option, and one of its options runs a command here.
        if not host or host.startswith("-") or not user or user.startswith("-"):
            why = "the host or the user is empty or begins with -"
            raise HostError("UMB175", f"{user}@{host} is not a valid SSH destination", why, "pass HOST or ADDRESS")
        self.host = host
        self.user = user
        self.key = key
        self.uses_sudo = sudo
        self.port = port
        self._prefix = _sudo_prefix(sudo)
        self._known_hosts = known_hosts
        self._stack = ExitStack()

    def run(self, command: Sequence[str], timeout_seconds: float, stdin: bytes | None = None) -> CommandResult:
        # The remote side passes one string to a shell, so every word is quoted.
        remote = shlex.join([*self._prefix, *command])
        done = _run([*self._ssh("-T"), "--", self._destination, remote], "ssh", timeout_seconds, stdin)
        if done.exit_code == SSH_FAILED:
            why = done.stderr.strip().splitlines()[-1:] or ["ssh printed no reason"]
            what = f"SSH to {self._destination} port {self.port} failed"
            raise HostError("UMB175", what, why[0], f"ssh -v -p {self.port} {self._destination}")
        return done

    def interactive(self, command: Sequence[str] = ()) -> int:
        """Run ssh on this process's terminal, without sudo; return its exit status.

        Raises HostError: it could not start.
        """
        remote = [shlex.join(command)] if command else []
        try:
            return subprocess.run(
                [*self._ssh("-o", "BatchMode=no"), "--", self._destination, *remote], check=False
            ).returncode
        except OSError as error:
            raise _not_started("ssh", error) from error

    def terminal_command(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command with the caller's terminal; without one, a login shell."""
        words = [*self._prefix, *(command or ("bash", "-l"))]
        return [*self._ssh("-t"), "--", self._destination, shlex.join(words)]

    @property
    def _destination(self) -> str:
        return f"{self.user}@{self.host}"

    def _ssh(self, *first: str) -> list[str]:
        # ssh takes the first value of an option that is given twice.
        command = ["ssh", *first, "-a", "-x", "-p", str(self.port)]
        for option in self._options():
            command += ["-o", option]
        return command

    def _options(self) -> list[str]:
        options = [
            "BatchMode=yes",
            f"ConnectTimeout={CONNECT_SECONDS}",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=3",
            "ForwardAgent=no",
            "ClearAllForwardings=yes",
            "StrictHostKeyChecking=accept-new",
            "UpdateHostKeys=no",
            "LogLevel=ERROR",
            _file_option("UserKnownHostsFile", self._hosts_file()),
        ]
        if self.key is not None:
            options += ["IdentitiesOnly=yes", _file_option("IdentityFile", self.key)]
        return options

    def _hosts_file(self) -> Path:
        if self._known_hosts is None:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="umbilical-ssh-"))
            self._known_hosts = Path(folder) / "known_hosts"
        return self._known_hosts

    def __enter__(self) -> "SshRunner":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _file_option(name: str, path: Path) -> str:
    # ssh splits the value at spaces and expands %-tokens.
    text = str(path).replace("%", "%%")
    return f'{name}="{text}"'


def _sudo_prefix(sudo: bool) -> list[str]:
    # -n: fail instead of prompting for a password.
    return ["sudo", "-n", "--"] if sudo else []


def _run(command: Sequence[str], title: str, timeout_seconds: float, stdin: bytes | None) -> CommandResult:
    try:
        # Empty input instead of the terminal, where the command could wait for the user.
        done = subprocess.run(command, input=stdin or b"", capture_output=True, timeout=timeout_seconds, check=False)
    except OSError as error:
        raise _not_started(title, error) from error
    except subprocess.TimeoutExpired as error:
        shown = shlex.join(command)
        why = f"it still ran after {timeout_seconds:g} s"
        raise HostError("UMB176", f"{title} timed out", why, f"run it by hand: {shown}") from error
    return CommandResult(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def _not_started(title: str, error: OSError) -> HostError:
    return HostError("UMB803", f"could not start {title}", error.strerror or str(error), f"command -v {title}")


# The check takes milliseconds; longer means that bash hangs.
SYNTAX_SECONDS: Final = 30.0


def syntax_complaint(script: bytes) -> str | None:
    """Return the syntax errors that `bash -n` reports, in one line; None without errors."""
    try:
        run(["bash", "-n"], SYNTAX_SECONDS, script)
    except HostError as fault:
        return " | ".join(fault.why.splitlines())
    return None


UNCHECKED: Final = "INI"
_FAULT: Final = re.compile(r"\[(ALERT|WARNING)\]")


def faults(exit_code: int, output: str) -> str:
    """Return the alerts and warnings of `haproxy -c`, or an empty string; warnings do not change its exit code."""
    lines = [line for line in output.splitlines() if line.strip()]
    found = [line for line in lines if _FAULT.match(line)]
    if exit_code == 0 and not found:
        return ""
    return " | ".join(found or lines[-1:]) or f"it exited with {exit_code}"


def parse_stats(text: str) -> list[BackendServer]:
    """Read the CSV of `show stat`, whose header begins with #. Raises HostError: UMB736, not CSV."""
    try:
        rows = list(csv.DictReader(io.StringIO(text.lstrip("# "), newline="")))
    except csv.Error as error:
        raise HostError("UMB736", "could not parse the load balancer's statistics", str(error), "haproxy -v") from error
    return [_server(row) for row in rows if row.get("svname") not in (None, "", "FRONTEND", "BACKEND")]


def _server(row: Mapping[str, str | None]) -> BackendServer:
    # A star means that a check is running; the result of the last one follows.
    check = (row.get("check_status") or "").lstrip("* ")
    # HAProxy counts a server as up before its first check; we do not.
    is_up = (row.get("status") or "").startswith("UP") and check != UNCHECKED
    return BackendServer(row.get("pxname") or "", row.get("svname") or "", is_up, check)
