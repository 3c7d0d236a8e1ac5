"""What the kubelet runner needs of this machine, looked at before anything is changed."""

import os
import platform
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from umbilical.fault import LabError
from umbilical.lab.kubelet import pause

PACKAGES: Final = {"containerd": "containerd", "ctr": "containerd", "runc": "runc"}
"""Program -> the Debian package that brings it."""
CNI_PACKAGE: Final = "containernetworking-plugins"
CNI_PLUGINS: Final = ("bridge", "host-local", "loopback")
# Debian's place, then Fedora's. Nothing in /opt or /usr/local: those are a node's own.
CNI_DIRECTORIES: Final = (Path("/usr/lib/cni"), Path("/usr/libexec/cni"))
# Of what a node has of this machine.
SEARCH_PATH: Final = "/usr/bin:/bin:/usr/sbin:/sbin"


def check_needs(binaries: Iterable[str], *, is_root: bool | None = None, path: str = SEARCH_PATH) -> None:
    """Refuse what cannot work.

    Raises:
        LabError: not root (UMB840), a program is missing (UMB841, UMB824's kubelet), an unknown machine (UMB845).
    """
    if not (os.geteuid() == 0 if is_root is None else is_root):
        why = "control groups and container mounts belong to root"
        remedy = "run it as root, or use the process runner: --runner process"
        raise LabError("UMB840", "the kubelet runner needs root", why, remedy)
    pause.program(platform.machine())
    missing = {package: name for name, package in PACKAGES.items() if shutil.which(name, path=path) is None}
    if find_cni() is None:
        missing[CNI_PACKAGE] = "the CNI plugins"
    if missing:
        raise _missing(missing)
    if "kubelet" not in set(binaries):
        why = "neither the cache of `make peers` nor PATH nor --bin-dir has one"
        raise LabError("UMB841", "the kubelet runner needs a kubelet", why, "make peers GROUP=kubernetes")


def find_cni(directories: Iterable[Path] = CNI_DIRECTORIES) -> Path | None:
    """Return the first directory with all the plugins that pods need here."""
    for directory in directories:
        if all(os.access(directory / plugin, os.X_OK) for plugin in CNI_PLUGINS):
            return directory
    return None


def _missing(missing: dict[str, str]) -> LabError:
    return LabError(
        "UMB841",
        f"the kubelet runner needs {', '.join(missing.values())}",
        f"looked in {SEARCH_PATH} and in {', '.join(map(str, CNI_DIRECTORIES))}",
        f"apt-get install --no-install-recommends {' '.join(missing)}",
    )
