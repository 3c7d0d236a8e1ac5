"""Machines of the hard way in a lab, for tests: a small cluster, its infrastructure, and whoever asks from inside."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.support import hardway
from tests.support.labs import control_groups_of, machine_picture

from umbilical.hardway.artifacts.infrastructure.render import render_infrastructure
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.config.cluster import Cluster, ClusterProfile
from umbilical.lab.hardway.machines import LabMachines
from umbilical.manifests.tree import AssetTree

PROGRAMS: Final = (
    "unshare",
    "nsenter",
    "nft",
    "ss",
    "ip",
    "haproxy",
    "coredns",
    "containerd",
    "ctr",
    "runc",
    "kubelet",
)
"""What a lab with machines cannot do without."""
INSIDE_SECONDS: Final = 120.0
UNIT: Final = "clock.service"
_ENTER: Final = """
import sys
from pathlib import Path
from umbilical.lab.hardway.machines import LabMachines
machines = LabMachines(Path(sys.argv[1]), "test")
machines.enter()
"""


def small_cluster(masters: int = 1, workers: int = 0) -> Cluster:
    """A cluster whose resolver is the twin of a host, as a lab has it."""
    found = hardway.cluster(ClusterProfile.KUBERNETES, masters, workers)
    return replace(found, networks=replace(found.networks, dns=found.networks.machine[2]), libvirt=None)


def infrastructure(cluster: Cluster) -> dict[str, bytes]:
    made = hardway.hardway_set(ClusterProfile.KUBERNETES, len(cluster.masters))
    inputs = Inputs(cluster, made, hardway.payload(ClusterProfile.KUBERNETES), hardway.identity())
    return {asset.path: asset.content for asset in render_infrastructure(inputs, AssetTree())}


@contextmanager
def built(directory: Path, cluster: Cluster) -> Iterator[LabMachines]:
    """Machines that are off, and their surroundings; afterwards this machine is as it was."""
    before = machine_picture()
    machines = LabMachines(directory, "test")
    try:
        machines.build(cluster, infrastructure(cluster))
        yield machines
    finally:
        machines.destroy()
    assert not directory.exists()
    assert control_groups_of(directory) == []
    assert machine_picture() == before


def start_inside(directory: Path, program: str, *arguments: str) -> subprocess.Popen[str]:
    """Run Python where `enter` leads."""
    command = [sys.executable, "-c", _ENTER + program, str(directory), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def inside(directory: Path, program: str, *arguments: str) -> str:
    process = start_inside(directory, program, *arguments)
    said, _ = process.communicate(timeout=INSIDE_SECONDS)
    assert process.returncode == 0
    return said


def ignition(name: str, dns: str = "192.0.2.53") -> bytes:
    """A config with what every machine has: a name, a resolver, a unit that runs."""
    keyfile = f"[ipv4]\nmethod=manual\ndns={dns};\n\n[ipv6]\nmethod=disabled\n"
    unit = '[Service]\nExecStart=/bin/sh -c "echo tick; exec sleep 1000"\nRestart=always\n'
    content: dict[str, Any] = {
        "ignition": {"version": "3.4.0"},
        "storage": {
            "directories": [{"path": "/etc/kubernetes/kubelet.conf.d", "mode": 0o755}],
            "files": [
                _file("/etc/hostname", f"{name}\n", 0o644),
                _file("/etc/NetworkManager/system-connections/machine.nmconnection", keyfile, 0o600),
            ],
        },
        "systemd": {
            "units": [
                {"name": UNIT, "enabled": True, "contents": unit},
                {"name": "containerd.service", "enabled": True},
            ]
        },
    }
    return json.dumps(content).encode()


def _file(path: str, text: str, mode: int) -> dict[str, Any]:
    quoted = "".join(f"%{byte:02X}" for byte in text.encode())
    return {"path": path, "mode": mode, "contents": {"source": f"data:,{quoted}"}}
