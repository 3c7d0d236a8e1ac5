"""What the pipeline needs of machines, whoever runs them: namespaces of a lab, virtual machines of libvirt.

Programs on a node are found by the ports that they listen on: machines of a lab share the names of processes.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from umbilical.hardway.config.cluster import Cluster
from umbilical.host.machine_records import BackendServer, Done, InfraProbe, Power, Survey

__all__ = ["BackendServer", "Done", "InfraProbe", "Machines", "Power", "Survey"]


class Machines(Protocol):
    """Every call is idempotent: asking for what is there already changes nothing. Failures are `Fault`s."""

    @property
    def kind(self) -> str:
        """`lab` or `libvirt`, as the user says it."""

    def survey(self, cluster: Cluster) -> Survey: ...

    def build(self, cluster: Cluster, infrastructure: Mapping[str, bytes]) -> None:
        """Make networks, names, load balancer and firewall from the artifacts of stage 02; machines stay off."""

    def inspect(self, cluster: Cluster) -> list[InfraProbe]:
        """Say whether what `build` makes is there and right now."""

    def enter(self) -> None:
        """Take this process to where the machine network can be reached: VIPs and nodes by their addresses."""

    def power(self, node_id: str) -> Power: ...

    def install(self, node_id: str, ignition: bytes) -> None:
        """Put the operating system and the node's Ignition config onto a machine that is new, and boot it."""

    def is_installed(self, node_id: str, ignition: bytes) -> bool:
        """Tell whether this very config was installed."""

    def start(self, node_id: str) -> None: ...

    def stop(self, node_id: str) -> None: ...

    def remove(self, node_id: str) -> None:
        """Delete a machine with its disk."""

    def run(
        self, node_id: str, command: Sequence[str], *, stdin: bytes | None = None, timeout_seconds: float = 60.0
    ) -> Done:
        """Run a program on a node as root. That it failed is no error here."""

    def read(self, node_id: str, path: str) -> bytes | None:
        """Read a file of a node; None if there is none."""

    def write(self, node_id: str, path: str, content: bytes, mode: int = 0o600) -> None: ...

    def set_balancer(self, config: bytes) -> None:
        """Validate, replace in one piece, reload without dropping a connection."""

    def balancer(self) -> list[BackendServer]: ...

    def destroy(self) -> None:
        """Remove everything that `build` and `install` made. Doing it twice is fine."""


PORTS: Final = {
    "etcd": 2379,
    "kube-apiserver": 6443,
    "kube-controller-manager": 10257,
    "kube-scheduler": 10259,
}
_KILL: Final = """
pids=$(ss -ltnpH "sport = :$1" | grep -o 'pid=[0-9]*' | cut -d= -f2 | sort -u)
[ -n "$pids" ] && kill -KILL $pids
"""


def is_listening(machines: Machines, node_id: str, program: str) -> bool:
    """Tell whether a program of the control plane runs on a node: it would take connections on its port."""
    port = str(PORTS[program])
    return machines.run(node_id, ["bash", "-c", 'exec 3<>"/dev/tcp/127.0.0.1/$1"', "bash", port]).exit_code == 0


def kill(machines: Machines, node_id: str, program: str) -> bool:
    """End a program without a warning, and tell whether there was one."""
    return machines.run(node_id, ["sh", "-c", _KILL, "sh", str(PORTS[program])]).exit_code == 0
