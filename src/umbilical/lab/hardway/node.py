"""One machine of a hard-way lab: first boot with Ignition, later boots, shutdown, and a fresh disk.

Replacements for what a lab node lacks: `unit_runner` for systemd, the lab's links and the resolver from the keyfile for
NetworkManager, and this machine's operating system.
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
from umbilical.hardway.node_logs import UNITS as UNIT_LOGS
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
# What a reboot clears. Deepest mounts first.
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
    """Stop a node's programs, pods with SIGTERM first. Raises LabError: UMB738, a process does not exit."""
    for process in lab.processes():
        if process.node == node and process.exit_code is None:
            # containerd is slow to stop, and its state is discarded anyway.
            lab.stop(node, process.name, kill=process.name == containerd.PROCESS)
    _signal(_in_pods(lab, node), signal.SIGTERM)
    # Sandboxes ignore SIGTERM.
    _wait_for_end(lambda: [pid for pid in _in_pods(lab, node) if not _is_sandbox(pid)], TERM_SECONDS)
    deadline = time.monotonic() + KILL_SECONDS
    while left := [*_in_pods(lab, node), *_own(lab, node)]:
        if time.monotonic() > deadline:
            why = f"processes still exist after SIGKILL: {left}"
            raise LabError("UMB738", f"could not power off {node}", why, f"ps -fp {','.join(map(str, left))}")
        _signal(left, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def forget_runtime_state(lab: "Lab", node: str) -> None:
    """Remove what a power cycle clears: mounts, nft rules, /run, control groups.

    A kubelet would spend three seconds on each leftover container group.
    """
    lab.exec(node, ["sh", "-c", _FORGET]).check()
    cgroups.remove(node_runtime.group_of(lab, node))


def network_namespace(lab: "Lab", node: str) -> Path:
    """Return the path of a node's network namespace, seen through the keeper's mounts."""
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
    """List the processes in the node's mount namespace, without the one that keeps it open."""
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
    """Return the pid of a process inside the lab; None if it has exited."""
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
"""Ignition writes it on every machine that it has set up."""
BOOTED: Final = "/run/booted"
"""Written at the end of a boot; /run is cleared at power-off."""
FIRST_BOOT: Final = "/var/lib/first-boot-complete"
DROP_IN: Final = f"{layout.KUBELET_CONFIG_DROP_INS}/90-machine.conf"
KEYFILES: Final = "/etc/NetworkManager/system-connections"
HOSTS: Final = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
APPLY_SECONDS: Final = 120.0


class LabNode:
    def __init__(self, lab: "Lab", name: str) -> None:
        self._lab = lab
        self.name = lab.topology.node(name).name

    @property
    def power(self) -> Power:
        """An interrupted boot or shutdown counts as ON: OFF means that nothing runs."""
        if self.installed_hash() is None:
            return Power.ABSENT
        is_on = self._lab.exists(self.name, BOOTED) or bool(self._running())
        return Power.ON if is_on else Power.OFF

    def installed_hash(self) -> str | None:
        """Return the hash of the installed config; None: the machine is new, or its setup was interrupted."""
        if not self._lab.exists(self.name, RESULT):
            return None
        return str(json.loads(self._lab.read(self.name, RESULT))["configHash"])

    def has(self, ignition: bytes) -> bool:
        """Return whether this config was installed and the first boot completed."""
        return self.installed_hash() == config_hash(ignition) and self._lab.exists(self.name, FIRST_BOOT)

    def install(self, ignition: bytes) -> None:
        """Set up and boot a machine. Raises LabError: it has another config (UMB737), or Ignition failed."""
        present = self.installed_hash()
        if present is None:
            self.clear()
            self._apply(ignition)
        elif present != config_hash(ignition):
            why = "it has another Ignition config, and Ignition runs at the first boot only"
            remedy = "delete the machine and its disk first: umbilical stage rollback"
            raise LabError("UMB737", f"{self.name} is already set up", why, remedy)
        self.boot()

    def boot(self) -> None:
        """Boot the machine from its disk; an interrupted boot starts again, and a running machine's failed services."""
        if self._lab.exists(self.name, BOOTED):
            self._start_failed()
            return
        self.shut_down()
        self._lab.set_link(self.name, True)
        self._take_identity()
        group = node_runtime.make_group(self._lab, self.name)
        self._lab.write(self.name, DROP_IN, kubelet_config.machine_drop_in(group), 0o644)
        node_runtime.start_containerd(self._lab, self.name)
        share_log(self._lab, self.name, containerd.PROCESS)
        for unit in self.enabled_units():
            self.start_unit(unit)
        self._lab.write(self.name, FIRST_BOOT, b"", 0o644)
        self._lab.write(self.name, BOOTED, b"", 0o644)

    def failed_services(self) -> list[str]:
        """List the services that should run and do not; a unit that ended with success has done its work."""
        ends = {one.name: one.exit_code for one in self._lab.processes() if one.node == self.name}
        units = [unit for unit in self.enabled_units() if ends.get(unit, -1) not in (None, 0)]
        return [*([containerd.PROCESS] if ends.get(containerd.PROCESS, -1) is not None else []), *units]

    def _start_failed(self) -> None:
        for name in self.failed_services():
            if name == containerd.PROCESS:
                node_runtime.start_containerd(self._lab, self.name)
            else:
                self.start_unit(name)

    def shut_down(self) -> None:
        """Power off, also after an interrupted boot."""
        end_everything(self._lab, self.name)
        forget_runtime_state(self._lab, self.name)
        self._lab.set_link(self.name, False)

    def clear(self) -> None:
        """Power off and reset the disk."""
        self.shut_down()
        # First, so that an interrupted reset counts as a new machine.
        self._lab.remove(self.name, RESULT)
        root = self._lab.directory.node_root(self.name)
        with tempfile.TemporaryDirectory(dir=self._lab.directory.run) as scratch:
            fresh = Path(scratch, "root")
            binaries = list(self._lab.state.binaries.values())
            shared = node_root.shared_directories(binaries)
            node_root.build(fresh, self.name, HOSTS, self._lab.directory.bin, binaries, shared)
            restore(root, fresh, mount_points(self._lab, self.name))

    def enabled_units(self) -> list[str]:
        """List the enabled units that exist on the node; others (a container runtime) belong to the machine."""
        preset = self._lab.read(self.name, PRESET).decode() if self._lab.exists(self.name, PRESET) else ""
        words = [line.split() for line in preset.splitlines()]
        names = [name for verb, name in (pair for pair in words if len(pair) == 2) if verb == "enable"]
        return [name for name in names if self._lab.exists(self.name, f"{UNITS}/{name}")]

    def start_unit(self, unit: str) -> None:
        if node_runtime.is_running(self._lab, self.name, unit):
            return
        share_log(self._lab, self.name, unit)
        self._lab.start(self.name, unit, [sys.executable, "-m", "umbilical.lab.unit_runner", unit])

    def _running(self) -> set[str]:
        return {one.name for one in self._lab.processes() if one.node == self.name and one.exit_code is None}

    def _apply(self, ignition: bytes) -> None:
        # The config sets the host name.
        self._lab.remove(self.name, "/etc/hostname")
        applier = [sys.executable, "-m", "umbilical.lab.ignition_applier", "/"]
        self._lab.exec(self.name, applier, stdin=ignition, timeout_seconds=APPLY_SECONDS).check()
        result = {"userConfigProvided": True, "configHash": config_hash(ignition)}
        self._lab.write(self.name, RESULT, json.dumps(result).encode(), 0o644)

    def _take_identity(self) -> None:
        """Set host name and resolver from the files that systemd and NetworkManager use."""
        if self._lab.exists(self.name, "/etc/hostname"):
            name = self._lab.read(self.name, "/etc/hostname").decode().strip()
            self._lab.exec(self.name, ["hostname", name]).check()
        folder = locate(self._lab.directory.node_root(self.name), KEYFILES)
        keyfiles = [path.read_text(errors="replace") for path in sorted(folder.glob("*.nmconnection"))]
        resolvers = [server for text in keyfiles for server in name_servers(text)]
        content = "".join(f"nameserver {server}\n" for server in resolvers)
        self._lab.write(self.name, "/etc/resolv.conf", content.encode(), 0o644)


def share_log(lab: "Lab", node: str, name: str) -> None:
    """Hard-link the log of a service into its node."""
    log = lab.directory.log_file(node, name)
    place = node_files.locate(lab.directory.node_root(node), f"{UNIT_LOGS}/{name}.log")
    make_directory(place.parent, 0o755)
    log.touch(0o600)
    place.unlink(missing_ok=True)
    place.hardlink_to(log)


def config_hash(ignition: bytes) -> str:
    return hashlib.sha256(ignition).hexdigest()


def name_servers(keyfile: str) -> list[str]:
    """Return the resolvers of a NetworkManager keyfile; none if it is invalid."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(keyfile)
    except configparser.Error:
        return []
    values = [parser.get(section, "dns", fallback="") for section in ("ipv4", "ipv6")]
    return [server.strip() for value in values for server in value.split(";") if server.strip()]


def restore(root: Path, fresh: Path, mounted: Iterable[str]) -> None:
    """Make a root like a fresh one, except for the node's mount points, which are not its disk.

    From outside they are empty directories, and deleting one would unmount it in the node.
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
