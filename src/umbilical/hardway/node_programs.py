"""Programs on a node, by the ports that they listen on: machines of a lab share the names of processes."""

from typing import Final

from umbilical.hardway.machines.interface import Machines

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
