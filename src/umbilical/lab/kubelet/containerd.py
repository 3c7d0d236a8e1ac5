"""The containerd of one node: root, state and socket are inside the node's root directory."""

import platform
import re
import struct
from pathlib import Path
from typing import Final

from umbilical.fault import LabError
from umbilical.host.waiting import NotYet
from umbilical.lab.lab import CompletedCommand, Lab
from umbilical.lab.waiting import wait

PAUSE_REFERENCE: Final = "localhost/pause:1"
PAUSE_PROGRAM: Final = "pause"

_BASE: Final = 0x400000
_ELF_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER: Final = struct.Struct("<IIQQQQQQ")
_IDENT: Final = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
_EXECUTABLE: Final = 2
_LOAD: Final = 1
_READ_AND_EXECUTE: Final = 5
_PAGE: Final = 0x1000
# ELF machine number, and a loop around a system call that waits: pause (34) on x86-64; on arm64, which has no pause,
# ppoll (73) without files and timeout.
_MACHINES: Final = {
    "x86_64": (62, bytes.fromhex("b822000000 0f05 ebf7")),
    "aarch64": (
        183,
        struct.pack("<7I", 0xD2800000, 0xD2800001, 0xD2800002, 0xD2800003, 0xD2800928, 0xD4000001, 0x17FFFFFA),
    ),
}


def pause_program(machine: str | None = None) -> bytes:
    """Return the pause program for a machine, by default this one. Raises LabError: UMB845, unknown machine."""
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        raise LabError(
            "UMB845",
            f"there is no pause program for {machine}",
            f"the kubelet runner supports {' and '.join(_MACHINES)}",
            "use the process runner: --runner process",
        )
    number, code = _MACHINES[machine]
    return _elf(number, code)


def _elf(machine: int, code: bytes) -> bytes:
    start = _ELF_HEADER.size + _PROGRAM_HEADER.size
    size = start + len(code)
    header = _ELF_HEADER.pack(
        _IDENT, _EXECUTABLE, machine, 1, _BASE + start, _ELF_HEADER.size, 0, 0,
        _ELF_HEADER.size, _PROGRAM_HEADER.size, 1, 0, 0, 0,
    )  # fmt: skip
    segment = _PROGRAM_HEADER.pack(_LOAD, _READ_AND_EXECUTE, 0, _BASE, _BASE, size, size, _PAGE)
    return header + segment + code


PROCESS: Final = "containerd"
CONFIG_PATH: Final = "/etc/containerd/config.toml"
SOCKET: Final = "/run/containerd/containerd.sock"
CNI_CONFIG_DIRECTORY: Final = "/etc/cni/net.d"
NAMESPACE: Final = "k8s.io"
"""containerd namespace of the kubelet."""
STATE_DIRECTORY: Final = "/var/lib/containerd"
START_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.1
# For kube-apiserver's 100 MB on two busy cores; users load larger ones.
IMPORT_SECONDS: Final = 600.0
_IMPORTED: Final = re.compile(r"^unpacking (\S+) \(.*\)\.\.\.done", re.MULTILINE)
_NOT_LOADED: Final = "failed to load plugin io.containerd.grpc.v1.cri"
_NO_WATCHER: Final = "too many open files"
_UNUSED: Final = (
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.internal.v1.opt",
)
# Tries an overlay mount on the node's directories, in a temporary mount namespace.
_TRY_OVERLAY: Final = """
set -e
mkdir -p "$1/lower" "$1/upper" "$1/work" "$1/merged"
trap 'rm -rf "$1"' EXIT
unshare --mount mount -t overlay overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" "$1/merged"
"""


def config(snapshotter: str, cni_directory: Path) -> str:
    """Return the configuration. Two settings protect the machine under the lab:

    without CAP_SYS_RESOURCE runc cannot set a lower OOM score than its parent's, and an AppArmor profile would be
    loaded into the shared kernel.
    """
    unused = ", ".join(f'"{plugin}"' for plugin in _UNUSED)
    section = 'plugins."io.containerd.grpc.v1.cri"'
    return (
        "version = 2\n"
        f'root = "{STATE_DIRECTORY}"\n'
        f"disabled_plugins = [{unused}]\n"
        f'[grpc]\n  address = "{SOCKET}"\n'
        f"[{section}]\n"
        f'  sandbox_image = "{PAUSE_REFERENCE}"\n'
        "  restrict_oom_score_adj = true\n"
        "  disable_apparmor = true\n"
        f'[{section}.containerd]\n  snapshotter = "{snapshotter}"\n'
        f'[{section}.cni]\n  bin_dir = "{cni_directory}"\n  conf_dir = "{CNI_CONFIG_DIRECTORY}"\n'
    )


def choose_snapshotter(lab: Lab, node: str) -> str:
    """Return overlayfs if it works; in a container, or on a tmpfs of an old kernel, layers must be copied."""
    tried = lab.exec(node, ["sh", "-c", _TRY_OVERLAY, "sh", "/var/lib/overlay-trial"])
    return "overlayfs" if tried.exit_code == 0 else "native"


def version(lab: Lab, node: str) -> str:
    """Return the version as one word, e.g. `1.6.20~ds1`."""
    words = lab.exec(node, ["containerd", "--version"]).check().text.split()
    return words[2] if len(words) > 2 else "unknown"


def start(lab: Lab, node: str) -> None:
    """Start it and wait until it is ready. Raises LabError: UMB842, it exited or has no CRI plugin; UMB850, timeout."""
    lab.start(node, PROCESS, ["containerd", "--config", CONFIG_PATH], restarts=True)

    def look() -> None:
        refuse_if_ended(lab, node, PROCESS)
        status = ctr(lab, node, "plugins", "ls", "id==cri").text.split()[-1:]
        if status == ["error"]:
            raise _without_plugin(lab, node)
        if status != ["ok"]:
            raise NotYet("its CRI plugin is not ready")

    wait(f"containerd on {node}", look, START_SECONDS, POLL_SECONDS)


def _without_plugin(lab: Lab, node: str) -> LabError:
    """A plugin is loaded once, so waiting does not help."""
    log = lab.directory.log_file(node, PROCESS)
    why = next((line for line in lab.log(node, PROCESS).splitlines() if _NOT_LOADED in line), "")
    remedy = f"tail {log}"
    if _NO_WATCHER in why:
        # The limit is per user, and every kubelet, containerd and kube-apiserver of all labs needs some.
        remedy = "umbilical lab down --all, or sysctl fs.inotify.max_user_instances=1024"
    return LabError("UMB842", f"containerd on {node} has no CRI plugin", why or "its log gives no reason", remedy)


def import_image(lab: Lab, node: str, archive_on_node: str, snapshotter: str) -> CompletedCommand:
    command = ("images", "import", "--snapshotter", snapshotter, archive_on_node)
    return ctr(lab, node, *command, timeout_seconds=IMPORT_SECONDS)


def parse_import(text: str) -> list[str]:
    """Return the names of the images in the output of `ctr images import`."""
    return _IMPORTED.findall(text)


def task_pids(lab: Lab, node: str) -> dict[str, int]:
    """Return container id -> pid of running containers, as seen in the lab."""
    return parse_tasks(ctr(lab, node, "tasks", "ls").check().text)


def parse_tasks(text: str) -> dict[str, int]:
    rows = [line.split() for line in text.splitlines()[1:]]
    return {row[0]: int(row[1]) for row in rows if len(row) == 3 and row[2] == "RUNNING"}


def ctr(lab: Lab, node: str, *arguments: str, timeout_seconds: float = 30.0) -> CompletedCommand:
    # The default of 10 s would hide that containerd has exited.
    command = ["ctr", "--connect-timeout", "2s", "--address", SOCKET, "--namespace", NAMESPACE, *arguments]
    return lab.exec(node, command, timeout_seconds=timeout_seconds)


def refuse_if_ended(lab: Lab, node: str, name: str) -> None:
    """Raise LabError UMB842 if a program of the node has exited."""
    for process in lab.processes():
        if (process.node, process.name) == (node, name) and process.exit_code is not None:
            lines = [line.strip() for line in lab.log(node, name).splitlines() if line.strip()]
            why = " | ".join(lines[-3:]) or "its log is empty"
            log = lab.directory.log_file(node, name)
            raise LabError("UMB842", f"{name} on {node} exited with {process.exit_code}", why, f"tail {log}")
