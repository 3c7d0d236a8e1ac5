"""Pulling a node's plug: whatever runs on it ends, mounts and rules that a boot would not find again go.

A node's own processes share its mount namespace, those in its pods its control group; both are seen from outside.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from umbilical.fault import LabError
from umbilical.lab import cgroups, removal
from umbilical.lab.kubelet import containerd, node_runtime, pause

if TYPE_CHECKING:
    from umbilical.lab.lab import Lab

TERM_SECONDS: Final = 5.0
KILL_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.05
# What a boot begins without. Deepest first, so that nothing is left below another mount.
_FORGET: Final = r"""
while read -r _ _ _ _ point _; do
  case $point in
    /run/*|/var/run/*|/var/lib/kubelet/*|/var/lib/containerd/*|/proc/sys/*) printf '%b\n' "$point" ;;
  esac
done < /proc/self/mountinfo | sort -r | while read -r point; do umount -l "$point"; done
nft list tables | while read -r _ family name; do
  case $name in umbilical_*) ;; *) nft delete table "$family" "$name" ;; esac
done
rm -rf /run/* /var/run/netns
"""


def end_everything(lab: "Lab", node: str) -> None:
    """End what runs on a node: those in pods are asked first, then all are killed.

    Raises:
        LabError: UMB738, something does not end even so.
    """
    for process in lab.processes():
        if process.node == node and process.exit_code is None:
            # containerd takes its time to leave, and nothing of it is to be kept.
            lab.stop(node, process.name, kill=process.name == containerd.PROCESS)
    _signal(_in_pods(lab, node), signal.SIGTERM)
    # Sandboxes hear no signal but SIGKILL.
    _wait_for_end(lambda: [pid for pid in _in_pods(lab, node) if not _is_sandbox(pid)], TERM_SECONDS)
    deadline = time.monotonic() + KILL_SECONDS
    while left := [*_in_pods(lab, node), *_own(lab, node)]:
        if time.monotonic() > deadline:
            why = f"after SIGKILL these are still there: {left}"
            raise LabError("UMB738", f"{node} cannot be powered off", why, "look at them: ps -fp PID")
        _signal(left, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def forget_runtime_state(lab: "Lab", node: str) -> None:
    """Remove what lives in the kernel's memory: mounts, rules, what is in /run, control groups.

    A kubelet that finds groups of containers that are no more asks for each of them, three seconds long.
    """
    lab.exec(node, ["sh", "-c", _FORGET]).check()
    cgroups.remove(node_runtime.group_of(lab, node))


def network_namespace(lab: "Lab", node: str) -> Path:
    """Say where this process finds a node's network namespace: by the keeper's view of its own mounts."""
    return Path(f"/proc/{lab.state.keeper_pid}/root{lab.directory.network_namespaces}/{node}")


def mount_points(lab: "Lab", node: str) -> list[str]:
    return removal.mount_points(Path(f"/proc/{lab.state.keeper_pid}/root/proc/{lab.anchor(node)}/mountinfo"))


def _in_pods(lab: "Lab", node: str) -> list[int]:
    trees = cgroups.find(node_runtime.group_of(lab, node))
    files = (Path(folder, "cgroup.procs") for tree in trees for folder, _, _ in os.walk(tree))
    return sorted({int(pid) for file in files for pid in _read(file).split()} - {0})


def _is_sandbox(pid: int) -> bool:
    return _read(Path(f"/proc/{pid}/comm")).strip() == pause.PROGRAM


def _own(lab: "Lab", node: str) -> list[int]:
    """List those in the node's mount namespace but for the one that holds it open."""
    anchor = lab.anchor(node)
    namespace = _identity(Path(f"/proc/{lab.state.keeper_pid}/root/proc/{anchor}/ns/mnt"))
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    inside = [pid for pid in pids if namespace is not None and _identity(Path(f"/proc/{pid}/ns/mnt")) == namespace]
    return [pid for pid in inside if _number_inside(pid) not in (None, anchor)]


def _identity(namespace: Path) -> int | None:
    try:
        return namespace.stat().st_ino
    except OSError:
        return None


def _number_inside(pid: int) -> int | None:
    """Return what a process is called in the lab; None if it has ended."""
    numbers = [line.split() for line in _read(Path(f"/proc/{pid}/status")).splitlines() if line.startswith("NSpid:")]
    return int(numbers[0][-1]) if numbers else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _wait_for_end(who: Callable[[], list[int]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while who() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
