"""The machine network of a hard-way lab: its nodes and its resolver (CoreDNS on the host node)."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from umbilical.fault import LabError
from umbilical.hardway.artifacts.infrastructure.places import resolver_command
from umbilical.hardway.config.cluster import Cluster, ClusterNode
from umbilical.host.waiting import NotYet
from umbilical.lab.topology import Family, IpInterface, LabNodeRole, Node, Topology
from umbilical.lab.waiting import wait

if TYPE_CHECKING:
    from umbilical.lab.lab import Lab

HOST: Final = "host"
"""Node with the load balancer's addresses and the resolver; the pipeline runs in its network."""
FAMILIES: Final = {4: Family.IPV4, 6: Family.IPV6}


def topology_of(cluster: Cluster) -> Topology:
    """Return the topology for a cluster, with the addresses of cluster.yaml."""
    networks = cluster.networks
    twin = Node(HOST, LabNodeRole.MANAGEMENT, (ipaddress.ip_interface(f"{networks.dns}/{networks.machine.prefixlen}"),))
    return Topology(
        family=FAMILIES[networks.machine.version],
        machine_networks=(networks.machine,),
        gateways=(networks.gateway,),
        pod_networks=(networks.pods,),
        service_networks=(networks.services,),
        nodes=(twin, *(_node(cluster, node) for node in cluster.nodes)),
    )


def _node(cluster: Cluster, node: ClusterNode) -> Node:
    address: IpInterface = ipaddress.ip_interface(f"{node.address}/{cluster.networks.machine.prefixlen}")
    pods = () if node.pod_network is None else (node.pod_network,)
    return Node(node.id, LabNodeRole(node.role.value), (address,), pods)


PROCESS: Final = "coredns"
FOLDER: Final = "/etc/coredns"
PORT: Final = 53
READY_SECONDS: Final = 60.0
SAMPLE_ROUTE: Final = "console"
"""Sample name below apps; all have the same answer."""
_START: Final = 'cd "$0" && exec "$@"'
# getent resolves like every program with a C library. One shell for all names, which is faster.
_ASK: Final = 'for one in "$@"; do printf "%s " "$one"; getent ahosts "$one" | grep -m1 STREAM || echo; done'
_ASK_BACK: Final = 'for one in "$@"; do printf "%s " "$one"; getent hosts "$one" || echo; done'
_IS_BOUND: Final = ("ss", "--no-header", "--listening", "--udp", "--numeric")


@dataclass(frozen=True)
class NameCheck:
    """A name with its expected address, or an address with its expected name."""

    name: str
    expected: str


def forward_checks(cluster: Cluster) -> list[NameCheck]:
    api, ingress = str(cluster.networks.api_vip), str(cluster.networks.ingress_vip)
    return [
        NameCheck(cluster.api_name, api),
        NameCheck(cluster.internal_api_name, api),
        NameCheck(f"{SAMPLE_ROUTE}.{cluster.apps_domain}", ingress),
        *(NameCheck(node.name, str(node.address)) for node in cluster.nodes),
    ]


def reverse_checks(cluster: Cluster) -> list[NameCheck]:
    return [NameCheck(str(node.address), node.name) for node in cluster.nodes]


class LabResolver:
    def __init__(self, lab: "Lab") -> None:
        self._lab = lab

    def serve(self, files: Mapping[str, bytes]) -> None:
        """Run CoreDNS with these files, which include `Corefile`. Raises LabError: UMB736, UMB850."""
        is_same = all(self._content(name) == content for name, content in files.items())
        if is_same and self._is_running():
            return
        for name, content in files.items():
            self._lab.write(HOST, f"{FOLDER}/{name}", content, 0o644)
        if self._is_running():
            self._lab.stop(HOST, PROCESS)
        self._lab.start(HOST, PROCESS, ["sh", "-c", _START, FOLDER, *resolver_command()], restarts=True)
        wait("CoreDNS", self._look, READY_SECONDS)

    def wrong(self, checks: Sequence[NameCheck], *, is_reverse: bool = False) -> list[str]:
        """Resolve all of them; return the wrong answers."""
        script = _ASK_BACK if is_reverse else _ASK
        done = self._lab.exec(HOST, ["sh", "-c", script, "sh", *(one.name for one in checks)])
        rows = [line.split() for line in done.text.splitlines()]
        # Each row is the query and its answer: an address, or an address and its name.
        answers = {row[0]: (row[2:3] if is_reverse else row[1:2]) for row in rows if row}
        return [
            f"{one.name} is {next(iter(answers.get(one.name, ())), 'unknown')}, not {one.expected}"
            for one in checks
            if list(answers.get(one.name, ())) != [one.expected]
        ]

    def _content(self, name: str) -> bytes:
        path = f"{FOLDER}/{name}"
        return self._lab.read(HOST, path) if self._lab.exists(HOST, path) else b""

    def _is_running(self) -> bool:
        return any((one.node, one.name, one.exit_code) == (HOST, PROCESS, None) for one in self._lab.processes())

    def _look(self) -> None:
        if not self._is_running():
            lines = self._lab.log(HOST, PROCESS).strip().splitlines()[-3:]
            log = self._lab.directory.log_file(HOST, PROCESS)
            raise LabError("UMB736", "CoreDNS exited", " | ".join(lines) or "its log is empty", f"tail {log}")
        if f":{PORT} " not in self._lab.exec(HOST, _IS_BOUND).text:
            raise NotYet(f"no process listens on port {PORT}")
