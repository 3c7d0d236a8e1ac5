"""Control groups of a lab's pods: the only thing of a lab that outlives its keeper.

Each hierarchy has its own tree: one per controller under version 1, a single one under version 2, and both kinds on
a machine that is in between. All trees of a lab hang under one name, by which `remove` finds them.
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
# Under version 1 a new cpuset is empty, and no process may enter an empty one.
_CPUSET: Final = ("cpuset.cpus", "cpuset.mems")
# What the kubelet insists on finding in its root under version 2.
_CONTROLLERS: Final = ("cpu", "cpuset", "memory", "pids")
REMOVE_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05


def lab_group(name: str, directory: Path) -> str:
    """Name the group of a lab: two labs of one name in two directories have two."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return f"{PREFIX}{plain or 'lab'}-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:8]}"


def make(name: str, root: Path = ROOT) -> None:
    """Make a group in every hierarchy, ready for a kubelet to work in; one that is there already is fine.

    Raises LabError: UMB846, not a lab's name, or the kernel does not allow it, or has no control groups.
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
    """Remove a group and all below it, everywhere. What is not there is fine.

    The processes in it must be ending: a group can go only when the last of them has.

    Raises LabError: UMB847, something still runs in it; UMB846, not a lab's name.
    """
    _check(name)
    deadline = time.monotonic() + timeout_seconds
    while (busy := _remove_once(name, root)) is not None:
        if time.monotonic() >= deadline:
            raise LabError(
                "UMB847",
                f"the control group {name} cannot be removed",
                f"after {timeout_seconds:g} s something still runs in {busy}",
                f"see what it is: cat {busy}/cgroup.procs",
            )
        time.sleep(_POLL_SECONDS)


def find(name: str, root: Path = ROOT) -> list[Path]:
    """List the trees of this name that exist."""
    _check(name)
    return [hierarchy / name for hierarchy in _hierarchies(root) if (hierarchy / name).is_dir()]


def _check(name: str) -> None:
    # It is joined to a path whose tree gets removed: nothing but a lab's own name may ever come through.
    if not _NAME.fullmatch(name) or ".." in name:
        why = f"it must begin with {PREFIX} and hold small letters, digits, dots and hyphens"
        remedy = "make the lab anew; its state file was changed by hand"
        raise LabError("UMB846", f"{name!r} is no control group of a lab", why, remedy)


def _hierarchies(root: Path) -> list[Path]:
    if (root / "cgroup.controllers").exists():
        return [root]
    # `cpu` and `cpuacct` are often links to one `cpu,cpuacct`.
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
    """Version 2: children have a controller only if their parent says so."""
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
    """Try it, and return a group that was still in use."""
    busy = None
    for tree in find(name, root):
        for folder, _, _ in os.walk(tree, topdown=False):
            try:
                # The files of a group are the kernel's and go with it.
                os.rmdir(folder)
            except FileNotFoundError:
                continue
            except OSError:
                busy = Path(folder)
    return busy


def _refused(name: str, why: str) -> LabError:
    remedy = "run as root where /sys/fs/cgroup can be written, or use the process runner: --runner process"
    return LabError("UMB846", f"cannot make the control group {name}", why, remedy)
