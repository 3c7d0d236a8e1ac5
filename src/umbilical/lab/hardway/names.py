"""The machine network of a hard-way lab: who is on it, and its resolver, which is CoreDNS on the host's twin with the
zones that were rendered for it.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from umbilical.fault import LabError
from umbilical.hardway.artifacts.infrastructure.places import resolver_command
from umbilical.hardway.config.cluster import Cluster
from umbilical.hardway.config.cluster import Node as ClusterNode
from umbilical.host.waiting import NotYet
from umbilical.lab.topology import Family, IpInterface, Node, NodeRole, Topology
from umbilical.lab.waiting import wait

if TYPE_CHECKING:
    from umbilical.lab.lab import Lab

HOST: Final = "host"
"""Has the load balancer's addresses and the resolver, and is where the pipeline stands."""
FAMILIES: Final = {4: Family.IPV4, 6: Family.IPV6}


def topology_of(cluster: Cluster) -> Topology:
    """Say which nodes the lab of a cluster has. Addresses are the config's own."""
    networks = cluster.networks
    twin = Node(HOST, NodeRole.MANAGEMENT, (ipaddress.ip_interface(f"{networks.dns}/{networks.machine.prefixlen}"),))
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
    return Node(node.id, NodeRole(node.role.value), (address,), pods)


PROCESS: Final = "coredns"
FOLDER: Final = "/etc/coredns"
PORT: Final = 53
READY_SECONDS: Final = 60.0
SAMPLE_ROUTE: Final = "console"
"""Any name below apps has the same answer; a user's first one is this."""
_START: Final = 'cd "$0" && exec "$@"'
# getent asks as every program with a C library does. One shell for all questions: each costs a few milliseconds.
_ASK: Final = 'for one in "$@"; do printf "%s " "$one"; getent ahosts "$one" | grep -m1 STREAM || echo; done'
_ASK_BACK: Final = 'for one in "$@"; do printf "%s " "$one"; getent hosts "$one" || echo; done'
_IS_BOUND: Final = ("ss", "--no-header", "--listening", "--udp", "--numeric")


@dataclass(frozen=True)
class Question:
    """A name with the address that it must have, or an address with its name."""

    asked: str
    right: str


def forward_questions(cluster: Cluster) -> list[Question]:
    api, ingress = str(cluster.networks.api_vip), str(cluster.networks.ingress_vip)
    return [
        Question(cluster.api_name, api),
        Question(cluster.internal_api_name, api),
        Question(f"{SAMPLE_ROUTE}.{cluster.apps_domain}", ingress),
        *(Question(node.name, str(node.address)) for node in cluster.nodes),
    ]


def reverse_questions(cluster: Cluster) -> list[Question]:
    return [Question(str(node.address), node.name) for node in cluster.nodes]


class Resolver:
    def __init__(self, lab: "Lab") -> None:
        self._lab = lab

    def serve(self, files: Mapping[str, bytes]) -> None:
        """Have a CoreDNS at work with these files, `Corefile` among them. Raises LabError: UMB736, UMB850."""
        is_same = all(self._content(name) == content for name, content in files.items())
        if is_same and self._is_running():
            return
        for name, content in files.items():
            self._lab.write(HOST, f"{FOLDER}/{name}", content, 0o644)
        if self._is_running():
            self._lab.stop(HOST, PROCESS)
        self._lab.start(HOST, PROCESS, ["sh", "-c", _START, FOLDER, *resolver_command()])
        wait("CoreDNS", self._look, READY_SECONDS)

    def wrong(self, questions: Sequence[Question], *, is_reverse: bool = False) -> list[str]:
        """Ask all of them, and say which answers are wrong."""
        script = _ASK_BACK if is_reverse else _ASK
        done = self._lab.exec(HOST, ["sh", "-c", script, "sh", *(one.asked for one in questions)])
        rows = [line.split() for line in done.text.splitlines()]
        # After what was asked comes the answer: an address first, or an address and its name.
        answers = {row[0]: (row[2:3] if is_reverse else row[1:2]) for row in rows if row}
        return [
            f"{one.asked} is {next(iter(answers.get(one.asked, ())), 'unknown')}, not {one.right}"
            for one in questions
            if list(answers.get(one.asked, ())) != [one.right]
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
            raise LabError("UMB736", "CoreDNS ended", " | ".join(lines) or "its log is empty", f"read {log}")
        if f":{PORT} " not in self._lab.exec(HOST, _IS_BOUND).text:
            raise NotYet(f"nobody listens on port {PORT}")
