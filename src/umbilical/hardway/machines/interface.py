"""The interface to machines: namespaces of a lab, or virtual machines of libvirt.

Programs on a node are found by their listening ports: the machines of a lab share one process table.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from umbilical.hardway.config.cluster import Cluster
from umbilical.host.machine_records import BackendServer, Done, InfraProbe, Power, Survey

__all__ = ["BackendServer", "Done", "InfraProbe", "Machines", "Power", "Survey"]


class Machines(Protocol):
    """Every call is idempotent. Failures are `Fault`s."""

    @property
    def kind(self) -> str:
        """`lab` or `libvirt`, as in cluster.yaml."""

    def survey(self, cluster: Cluster) -> Survey: ...

    def build(self, cluster: Cluster, infrastructure: Mapping[str, bytes]) -> None:
        """Create networks, DNS names, load balancer and firewall from the artifacts of stage 02; machines stay off."""

    def inspect(self, cluster: Cluster) -> list[InfraProbe]:
        """Check what `build` makes."""

    def enter(self) -> None:
        """Move this process to where it can reach VIPs and nodes by their addresses."""

    def power(self, node_id: str) -> Power: ...

    def install(self, node_id: str, ignition: bytes) -> None:
        """Install a new machine with the node's Ignition config, and boot it."""

    def is_installed(self, node_id: str, ignition: bytes) -> bool:
        """Whether exactly this config was installed."""

    def start(self, node_id: str) -> None:
        """Start a machine that is off. In a lab also the failed services of one that is on."""

    def failed_services(self, node_id: str) -> list[str]:
        """List the services of a running machine that should run and do not."""

    def stop(self, node_id: str) -> None: ...

    def remove(self, node_id: str) -> None:
        """Delete a machine with its disk."""

    def run(
        self, node_id: str, command: Sequence[str], *, stdin: bytes | None = None, timeout_seconds: float = 60.0
    ) -> Done:
        """Run a program on a node as root; a non-zero exit code is not an error."""

    def shell(self, node_id: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command on a node with the caller's terminal; by default a shell."""

    def load_image(self, node_id: str, archive: Path) -> list[str]:
        """Load an image archive into a node's container runtime, and return the names of the images."""

    def read(self, node_id: str, path: str) -> bytes | None:
        """Read a file of a node; None if it does not exist."""

    def write(self, node_id: str, path: str, content: bytes, mode: int = 0o600) -> None: ...

    def set_balancer(self, config: bytes) -> None:
        """Validate a config, replace it atomically, and reload without dropping connections."""

    def balancer(self) -> list[BackendServer]: ...

    def destroy(self) -> None:
        """Remove everything that `build` and `install` made."""


PORTS: Final = {"etcd": 2379, "kube-apiserver": 6443, "kube-controller-manager": 10257, "kube-scheduler": 10259}
_KILL: Final = """
pids=$(ss -ltnpH "sport = :$1" | grep -o 'pid=[0-9]*' | cut -d= -f2 | sort -u)
[ -n "$pids" ] && kill -KILL $pids
"""


def is_listening(machines: Machines, node_id: str, program: str) -> bool:
    """Whether a control plane program runs on a node, that is, listens on its port."""
    port = str(PORTS[program])
    return machines.run(node_id, ["bash", "-c", 'exec 3<>"/dev/tcp/127.0.0.1/$1"', "bash", port]).exit_code == 0


def kill(machines: Machines, node_id: str, program: str) -> bool:
    """Kill a program with SIGKILL; return whether it was running."""
    return machines.run(node_id, ["sh", "-c", _KILL, "sh", str(PORTS[program])]).exit_code == 0
