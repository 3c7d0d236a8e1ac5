"""How a lab is isolated: with namespaces as root, with an additional user namespace for other users.

It is found out by trying, because a sysctl, a security module or a container can forbid it.
"""

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Final

from umbilical.fault import LabError

# The first with mount_setattr, which makes a node's mounts read-only, in a user namespace too.
OLDEST_KERNEL: Final = (5, 12)
NEEDED_PROGRAMS: Final = {"unshare": "util-linux", "nsenter": "util-linux"}
"""Program -> its package, which Debian and Fedora always have."""
NEEDED_LIBRARIES: Final = ("pyroute2", "lightkube")
PROGRAM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Searched in addition to PATH, which for users often lacks them."""
TRIAL_SECONDS: Final = 20.0
_NAMESPACES: Final = ("--mount", "--net", "--pid", "--fork", "--kill-child=SIGKILL", "--propagation", "private")
_USER: Final = ("--user", "--map-root-user")
_RESTRICTIONS: Final = {
    "/proc/sys/kernel/unprivileged_userns_clone": ("0", "sudo sysctl kernel.unprivileged_userns_clone=1"),
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    "/proc/sys/user/max_user_namespaces": ("0", "sudo sysctl user.max_user_namespaces=10000"),
}
"""Kernel settings that forbid user namespaces: the forbidding value, and the command that allows them."""


class Isolation(Enum):
    ROOT = "root"
    USER_NAMESPACE = "user namespace"

    @property
    def unshare_options(self) -> tuple[str, ...]:
        return (*_USER, *_NAMESPACES) if self is Isolation.USER_NAMESPACE else _NAMESPACES

    @property
    def is_rootless(self) -> bool:
        return self is Isolation.USER_NAMESPACE


def choose() -> Isolation:
    """Find the isolation that works for this user on this machine. Changes nothing.

    Raises LabError: not Linux (UMB823), kernel too old (UMB821), missing program (UMB822), namespaces not permitted
    (UMB820), or missing Python package (UMB826).
    """
    check_system(platform.system())
    check_kernel(platform.release())
    check_programs()
    check_libraries(NEEDED_LIBRARIES)
    wanted = Isolation.ROOT if os.geteuid() == 0 else Isolation.USER_NAMESPACE
    refusal = _try(wanted)
    if refusal is None:
        return wanted
    # Root in a container often lacks CAP_SYS_ADMIN and may still create a user namespace.
    if wanted is Isolation.ROOT and _try(Isolation.USER_NAMESPACE) is None:
        return Isolation.USER_NAMESPACE
    raise LabError("UMB820", "no permission to create the lab's namespaces", refusal, _remedy(wanted))


def check_system(system: str) -> None:
    if system != "Linux":
        why = f"a lab uses Linux namespaces; this is {system or 'an unknown system'}"
        raise LabError("UMB823", "a lab needs Linux", why, "run it in a Linux virtual machine")


def check_kernel(release: str) -> None:
    """Check the output of `uname -r`; a text without a version is accepted."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})", release)
    if found and (int(found[1]), int(found[2])) < OLDEST_KERNEL:
        oldest = ".".join(map(str, OLDEST_KERNEL))
        why = f"this is Linux {release}, and a lab needs {oldest} or newer"
        raise LabError("UMB821", "the kernel is too old for a lab", why, "boot a newer kernel, or use another machine")


def check_programs(needed: Mapping[str, str] = NEEDED_PROGRAMS, who: str = "the lab") -> None:
    """Check that programs exist; `needed` maps each to its package. Raises LabError: one is missing (UMB822)."""
    missing = [name for name in needed if find_program(name) is None]
    if missing:
        packages = " ".join(dict.fromkeys(needed[name] for name in missing))
        what = f"a program that {who} needs is missing: {', '.join(missing)}"
        remedy = f"sudo apt install {packages} (Fedora: sudo dnf install {packages})"
        raise LabError("UMB822", what, f"searched {search_path()}", remedy)


def check_libraries(names: Iterable[str]) -> None:
    """Check the packages of the extra `lab`, which a plain installation does not have."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        what = f"a Python package that the lab needs is missing: {', '.join(missing)}"
        raise LabError("UMB826", what, f"{sys.executable} does not find it", "pip install 'umbilical[lab]'")


def find_program(name: str) -> str | None:
    return shutil.which(name, path=search_path())


def search_path() -> str:
    """Return the user's PATH and the sbin directories."""
    own = os.environ.get("PATH")
    return PROGRAM_PATH if own is None else f"{own}:/usr/sbin:/sbin"


def _try(isolation: Isolation) -> str | None:
    """Create the same namespaces and mounts as a keeper, for a program that ends at once; return the error."""
    unshare = find_program("unshare") or "unshare"
    command = [unshare, *isolation.unshare_options, "--mount-proc", "--", "/bin/sh", "-c", ":"]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=TRIAL_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    return done.stderr.decode(errors="replace").strip() or f"unshare exited with {done.returncode}"


def _remedy(wanted: Isolation) -> str:
    if wanted is Isolation.ROOT:
        return "give this container CAP_SYS_ADMIN and CAP_NET_ADMIN (podman run --privileged), or run outside of it"
    found = [remedy for path, (bad, remedy) in _RESTRICTIONS.items() if _content(path) == bad]
    return found[0] if found else "sudo umbilical lab up"


def _content(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
