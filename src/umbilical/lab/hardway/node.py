"""One machine of a hard-way lab: its first boot from Ignition, later boots, its end, and a disk as new.

What a real machine has and a node of a lab has not is stood in for: systemd by `unit_runner`, NetworkManager by the
lab's own links and the resolver that the keyfile names, the operating system by this machine's.
"""

import configparser
import contextlib
import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from umbilical.fault import LabError
from umbilical.hardway.artifacts import layout
from umbilical.host.files import make_directory
from umbilical.host.machine_records import Power
from umbilical.lab import cgroups, node_root, removal
from umbilical.lab import node_root as node_files
from umbilical.lab.ignition_applier import PRESET, UNITS
from umbilical.lab.kubelet import containerd, kubelet_config, node_runtime
from umbilical.lab.kubelet import containerd as pause
from umbilical.lab.node_root import locate

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
    """End a node's programs, those in pods asked first. Raises LabError: UMB738, something does not end."""
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
    return _read(Path(f"/proc/{pid}/comm")).strip() == pause.PAUSE_PROGRAM


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


RESULT: Final = "/etc/.ignition-result.json"
"""Ignition leaves it on every machine that it has set up."""
BOOTED: Final = "/run/booted"
"""Written when a boot has come to its end; what is in /run does not outlive the machine's power."""
FIRST_BOOT: Final = "/var/lib/first-boot-complete"
DROP_IN: Final = f"{layout.KUBELET_CONFIG_DROP_INS}/90-machine.conf"
KEYFILES: Final = "/etc/NetworkManager/system-connections"
HOSTS: Final = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
APPLY_SECONDS: Final = 120.0
JOURNAL: Final = "/var/log/units"
"""<unit>.log: what units print. systemd would keep it in its journal."""


class LabNode:
    def __init__(self, lab: "Lab", name: str) -> None:
        self._lab = lab
        self.name = lab.topology.node(name).name

    @property
    def power(self) -> Power:
        """What runs half-way, in a boot or a shutdown that was killed, counts as on: OFF promises that nothing does."""
        if self.installed_hash() is None:
            return Power.ABSENT
        is_on = self._lab.exists(self.name, BOOTED) or bool(self._running())
        return Power.ON if is_on else Power.OFF

    def installed_hash(self) -> str | None:
        """Return the hash of the config that the machine was set up with; None: it is new, or half set up."""
        if not self._lab.exists(self.name, RESULT):
            return None
        return str(json.loads(self._lab.read(self.name, RESULT))["configHash"])

    def has(self, ignition: bytes) -> bool:
        """Tell whether it was set up with this config, and has come to the end of its first boot."""
        return self.installed_hash() == config_hash(ignition) and self._lab.exists(self.name, FIRST_BOOT)

    def install(self, ignition: bytes) -> None:
        """Boot a new machine. Raises LabError: it has another config (UMB737), or this one cannot be applied."""
        present = self.installed_hash()
        if present is None:
            self.clear()
            self._apply(ignition)
        elif present != config_hash(ignition):
            why = "another Ignition config was installed, and a machine takes its first one only"
            remedy = "delete the machine with what is on it first: umbilical stage rollback"
            raise LabError("UMB737", f"{self.name} is set up already", why, remedy)
        self.boot()

    def boot(self) -> None:
        """Start the machine with what is on its disk; from the beginning if an earlier boot was killed."""
        if self._lab.exists(self.name, BOOTED) and containerd.PROCESS in self._running():
            return
        self.shut_down()
        self._lab.set_link(self.name, True)
        self._take_identity()
        group = node_runtime.make_group(self._lab, self.name)
        self._lab.write(self.name, DROP_IN, kubelet_config.machine_drop_in(group), 0o644)
        node_runtime.start_containerd(self._lab, self.name)
        for unit in self.enabled_units():
            self.start_unit(unit)
        self._lab.write(self.name, FIRST_BOOT, b"", 0o644)
        self._lab.write(self.name, BOOTED, b"", 0o644)

    def shut_down(self) -> None:
        """Pull the plug: also of one whose boot was killed half-way."""
        end_everything(self._lab, self.name)
        forget_runtime_state(self._lab, self.name)
        self._lab.set_link(self.name, False)

    def clear(self) -> None:
        """Power it off and give it a disk as new."""
        self.shut_down()
        # First of all: a machine with half a disk is none.
        self._lab.remove(self.name, RESULT)
        root = self._lab.directory.node_root(self.name)
        with tempfile.TemporaryDirectory(dir=self._lab.directory.run) as scratch:
            fresh = Path(scratch, "root")
            binaries = list(self._lab.state.binaries.values())
            shared = node_root.shared_directories(binaries)
            node_root.build(fresh, self.name, HOSTS, self._lab.directory.bin, binaries, shared)
            restore(root, fresh, mount_points(self._lab, self.name))

    def enabled_units(self) -> list[str]:
        """List what Ignition enabled and the machine has; others (a container runtime) are the machine's own."""
        preset = self._lab.read(self.name, PRESET).decode() if self._lab.exists(self.name, PRESET) else ""
        words = [line.split() for line in preset.splitlines()]
        names = [name for verb, name in (pair for pair in words if len(pair) == 2) if verb == "enable"]
        return [name for name in names if self._lab.exists(self.name, f"{UNITS}/{name}")]

    def start_unit(self, unit: str) -> None:
        if node_runtime.is_running(self._lab, self.name, unit):
            return
        self._share_log(unit)
        self._lab.start(self.name, unit, [sys.executable, "-m", "umbilical.lab.unit_runner", unit])

    def _running(self) -> set[str]:
        return {one.name for one in self._lab.processes() if one.node == self.name and one.exit_code is None}

    def _apply(self, ignition: bytes) -> None:
        # A machine has no name before its config gives it one.
        self._lab.remove(self.name, "/etc/hostname")
        applier = [sys.executable, "-m", "umbilical.lab.ignition_applier", "/"]
        self._lab.exec(self.name, applier, stdin=ignition, timeout_seconds=APPLY_SECONDS).check()
        result = {"userConfigProvided": True, "configHash": config_hash(ignition)}
        self._lab.write(self.name, RESULT, json.dumps(result).encode(), 0o644)

    def _take_identity(self) -> None:
        """Name the machine and its resolver, as systemd and NetworkManager do from the same files."""
        if self._lab.exists(self.name, "/etc/hostname"):
            name = self._lab.read(self.name, "/etc/hostname").decode().strip()
            self._lab.exec(self.name, ["hostname", name]).check()
        folder = locate(self._lab.directory.node_root(self.name), KEYFILES)
        keyfiles = [path.read_text(errors="replace") for path in sorted(folder.glob("*.nmconnection"))]
        resolvers = [server for text in keyfiles for server in name_servers(text)]
        content = "".join(f"nameserver {server}\n" for server in resolvers)
        self._lab.write(self.name, "/etc/resolv.conf", content.encode(), 0o644)

    def _share_log(self, unit: str) -> None:
        """Show a unit's log on the node too: one file with two names."""
        log = self._lab.directory.log_file(self.name, unit)
        place = node_files.locate(self._lab.directory.node_root(self.name), f"{JOURNAL}/{unit}.log")
        make_directory(place.parent, 0o755)
        log.touch(0o600)
        place.unlink(missing_ok=True)
        place.hardlink_to(log)


def config_hash(ignition: bytes) -> str:
    return hashlib.sha256(ignition).hexdigest()


def name_servers(keyfile: str) -> list[str]:
    """Read the resolvers of a NetworkManager keyfile; one that cannot be read has none."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(keyfile)
    except configparser.Error:
        return []
    values = [parser.get(section, "dns", fallback="") for section in ("ipv4", "ipv6")]
    return [server.strip() for value in values for server in value.split(";") if server.strip()]


def restore(root: Path, fresh: Path, mounted: Iterable[str]) -> None:
    """Make a root like a fresh one, but for places where the node has something mounted: those are not its disk.

    From outside they are empty directories, and removing one would take the mount away from the node.
    """
    kept = {str(parent) for point in mounted for parent in (Path(point), *Path(point).parents)}
    for folder, folders, files in os.walk(root):
        here = Path("/", os.path.relpath(folder, root))
        alien = [name for name in (*folders, *files) if not os.path.lexists(fresh / here.relative_to("/") / name)]
        for name in alien:
            if str(here / name) not in kept:
                _delete(Path(folder, name))
        folders[:] = [name for name in folders if name not in alien]
    _copy_files(fresh / "etc", root / "etc")


def _copy_files(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        place = target / path.relative_to(source)
        if path.is_file() and not path.is_symlink():
            place.unlink(missing_ok=True)
            shutil.copy2(path, place)


def _delete(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink()
