"""Control groups of a lab's pods: the only part of a lab that outlives its keeper.

Version 1 has a hierarchy per controller, version 2 a single one; a machine may have both. A lab has one group name in
all of them, by which `remove` finds its groups.
"""

import hashlib
import os
import re
import time
from pathlib import Path
from typing import Final

from umbilical.fault import LabError

ROOT: Final = Path("/sys/fs/cgroup")
PREFIX: Final = "umbilical-"
_NAME: Final = re.compile(re.escape(PREFIX) + r"[a-z0-9][a-z0-9.-]*(/[a-z0-9][a-z0-9.-]*)*")
# In version 1 a new cpuset is empty, and no process can enter it.
_CPUSET: Final = ("cpuset.cpus", "cpuset.mems")
# Controllers that the kubelet requires in its root in version 2.
_CONTROLLERS: Final = ("cpu", "cpuset", "memory", "pids")
REMOVE_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05


def lab_group(name: str, directory: Path) -> str:
    """Return the group name of a lab; it depends on name and directory."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return f"{PREFIX}{plain or 'lab'}-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:8]}"


def make(name: str, root: Path = ROOT) -> None:
    """Create a group for a kubelet in every hierarchy; an existing one is fine.

    Raises LabError: UMB846, the name is not a lab's, or the kernel refuses or has no control groups.
    """
    _check(name)
    hierarchies = _hierarchies(root)
    if not hierarchies:
        raise _refused(name, f"nothing is mounted in {root}")
    try:
        for hierarchy in hierarchies:
            _make_in(hierarchy, name)
    except OSError as error:
        raise _refused(name, f"{error.filename or root}: {error.strerror}") from error


def remove(name: str, root: Path = ROOT, timeout_seconds: float = REMOVE_SECONDS) -> None:
    """Remove a group and its children from every hierarchy; a missing one is fine.

    Its processes must be ending already: waits for the last one.

    Raises LabError: UMB847, a process still runs in it; UMB846, the name is not a lab's.
    """
    _check(name)
    deadline = time.monotonic() + timeout_seconds
    while (busy := _remove_once(name, root)) is not None:
        if time.monotonic() >= deadline:
            raise LabError(
                "UMB847",
                f"the control group {name} was not removed",
                f"after {timeout_seconds:g} s a process still runs in {busy}",
                f"cat {busy}/cgroup.procs",
            )
        time.sleep(_POLL_SECONDS)


def find(name: str, root: Path = ROOT) -> list[Path]:
    """List the existing groups of this name."""
    _check(name)
    return [hierarchy / name for hierarchy in _hierarchies(root) if (hierarchy / name).is_dir()]


def _check(name: str) -> None:
    # The name becomes part of a path that is removed, so only a lab's name is allowed.
    if not _NAME.fullmatch(name) or ".." in name:
        why = f"it must start with {PREFIX}, followed by lower-case letters, digits, dots and hyphens"
        remedy = "its state file was edited: umbilical lab down, then umbilical lab up"
        raise LabError("UMB846", f"{name!r} is not a control group of a lab", why, remedy)


def _hierarchies(root: Path) -> list[Path]:
    if (root / "cgroup.controllers").exists():
        return [root]
    # `cpu` and `cpuacct` are often links to `cpu,cpuacct`.
    found = [path for path in sorted(root.glob("*")) if not path.is_symlink()]
    return [path for path in found if (path / "cgroup.procs").exists()]


def _make_in(hierarchy: Path, name: str) -> None:
    group = hierarchy
    for part in name.split("/"):
        _enable_controllers(group)
        parent, group = group, group / part
        group.mkdir(exist_ok=True)
        _copy_cpuset(parent, group)


def _enable_controllers(group: Path) -> None:
    """In version 2 a parent must enable the controllers of its children."""
    control = group / "cgroup.subtree_control"
    if not control.exists():
        return
    there = set((group / "cgroup.controllers").read_text().split())
    missing = sorted(there.intersection(_CONTROLLERS) - set(control.read_text().split()))
    if missing:
        control.write_text(" ".join(f"+{controller}" for controller in missing))


def _copy_cpuset(parent: Path, group: Path) -> None:
    if (group / "cgroup.controllers").exists():
        return
    for name in _CPUSET:
        if (parent / name).exists() and not (group / name).read_text().strip():
            (group / name).write_text((parent / name).read_text())


def _remove_once(name: str, root: Path) -> Path | None:
    """Try to remove all; return a group that was still in use."""
    busy = None
    for tree in find(name, root):
        for folder, _, _ in os.walk(tree, topdown=False):
            try:
                # The kernel removes the files of a group with it.
                os.rmdir(folder)
            except FileNotFoundError:
                continue
            except OSError:
                busy = Path(folder)
    return busy


def _refused(name: str, why: str) -> LabError:
    remedy = "run as root with a writable /sys/fs/cgroup, or use --runner process"
    return LabError("UMB846", f"the control group {name} was not created", why, remedy)
