"""Debian's packages by mmdebstrap, with the archives, proxies and credentials of this machine's apt.

They are read at run time and never stored. Standard library only.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SUITE: Final = "bookworm"
SETTINGS: Final = Path("/etc/apt")
MIRROR: Final = "http://deb.debian.org/debian"
"""Used if this machine's apt has no archive of Debian."""
SECURITY: Final = "http://deb.debian.org/debian-security"
"""The same for security updates."""
APT_SETTINGS: Final = ("Acquire::http", "Acquire::https", "Acquire::Check-Valid-Until", "Acquire::Retries")
QUERY_SECONDS: Final = 60.0
PACKAGES: Final = {
    "chroot": "coreutils",
    "dpkg-deb": "dpkg",
    "git": "git",
    "mmdebstrap": "mmdebstrap",
    "tar": "tar",
    "unshare": "util-linux",
}
"""Debian's package of each program that our tools look for."""


class DebianError(Exception):
    """Something is missing or failed; contains the three lines for the user."""

    def __init__(self, code: str, what: str, why: str, remedy: str) -> None:
        super().__init__(f"{code} {what}\n  why: {why}\n  next: {remedy}")
        self.code = code


def require_program(name: str, command: str, code: str) -> str:
    """Return the path of a program that a command needs. Raises DebianError with its package if it is missing."""
    found = shutil.which(name)
    if found is None:
        why = f"the program `{name}` is not on PATH"
        raise DebianError(code, f"{command} needs {name}", why, f"apt-get install {PACKAGES[name]}")
    return found


def mmdebstrap(
    options: Sequence[str], target: str, archives: Sequence[str], seconds: float, code: str, what: str
) -> None:
    """Run mmdebstrap. Raises DebianError with this code: it failed, or it is not installed."""
    program = require_program("mmdebstrap", "this command", code)
    with tempfile.NamedTemporaryFile("w", prefix="umbilical-apt-", suffix=".conf") as settings:
        settings.write(apt_settings())
        settings.flush()
        run_quietly([program, *options, f"--aptopt={settings.name}", SUITE, target, *archives], seconds, code, what)


def archive(settings: Path = SETTINGS) -> str:
    """Return the archive of Debian that this machine's apt uses."""
    return _listed(settings, "/debian") or MIRROR


def archives_with_updates(settings: Path = SETTINGS) -> list[str]:
    """Return lines for the suite with its updates and security updates."""
    main, security = archive(settings), _listed(settings, "/debian-security") or SECURITY
    return [
        f"deb {main} {SUITE} main",
        f"deb {main} {SUITE}-updates main",
        f"deb {security} {SUITE}-security main",
    ]


def _listed(settings: Path, end: str) -> str | None:
    lists = [settings / "sources.list", *sorted((settings / "sources.list.d").glob("*"))]
    for path in lists:
        if path.suffix in {".list", ".sources"} and path.is_file():
            for word in path.read_text(errors="replace").split():
                if word.startswith(("http://", "https://")) and word.rstrip("/").endswith(end):
                    return word
    return None


def apt_settings() -> str:
    """Return the settings of this machine's apt for archives: proxies, certificates, credentials."""
    lines = _lines(["apt-config", "dump"]) if shutil.which("apt-config") else []
    kept = [line for line in lines if line.startswith(APT_SETTINGS)]
    places = {"Dir::Etc::netrc": "/etc/apt/auth.conf", "Dir::Etc::netrcparts": "/etc/apt/auth.conf.d"}
    kept += [f'{name} "{path}";' for name, path in places.items() if os.path.exists(path)]
    return "".join(f"{line}\n" for line in kept)


def run_quietly(command: Sequence[str], seconds: float, code: str, what: str) -> None:
    """Run a command. Raises DebianError with the last line that it printed: it failed or timed out."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        why, remedy = f"timed out after {seconds:.0f} s", f"run it by hand: {' '.join(command)}"
        raise DebianError(code, what, why, remedy) from None
    if done.returncode != 0:
        last = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()][-1:]
        why = last[0] if last else f"{command[0]} exited with {done.returncode}"
        raise DebianError(code, what, why, f"run it by hand: {' '.join(command)}")


def _lines(command: Sequence[str]) -> list[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=QUERY_SECONDS, check=False
    ).stdout.splitlines()
