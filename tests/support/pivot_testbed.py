"""A cluster that is ready for the pivot: members joined, masters registered, P1 to P8 hold."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support import api_stock
from tests.support.api_stock import Stock
from tests.support.control_plane import ControlPlane
from tests.support.etcdctl import Etcdctl, Row
from tests.support.live_site import StaticPods, live_site, machines_of, switch_on
from tests.support.made_up_smoke_test import MadeUpSmokeTest

from umbilical.hardway.config.cluster import ClusterNode
from umbilical.hardway.etcd import BOOTSTRAP_MEMBER, peer_url
from umbilical.hardway.machines.interface import PORTS, Done
from umbilical.hardway.pivot_conditions import CONTROLLERS
from umbilical.hardway.site import Site

SNAPSHOT: Final = "/var/lib/etcd/pivot-snapshot.db"


@dataclass
class PivotTestbed:
    site: Site
    etcd: Etcdctl
    pods: StaticPods
    shelf: Stock

    def hold_leases(self, node: ClusterNode) -> None:
        """Controllers lead from a node."""
        self.shelf.put(*(lease(name, f"{node.name}_0f3c") for name in CONTROLLERS))

    def serve_from(self, *nodes: ClusterNode) -> None:
        self.shelf.put(endpoint_slice([str(node.address) for node in nodes]))


def make_testbed(
    folder: Path, plane: ControlPlane, shelf: Stock, smoke_test: MadeUpSmokeTest | None = None, masters: int = 1
) -> PivotTestbed:
    site = live_site(folder, plane, masters=masters)
    site.smoke_test = smoke_test
    switch_on(site)
    etcd, pods = joined(site), StaticPods(*PORTS)
    machines = machines_of(site)
    machines.responders += [etcd, pods, as_kubelet]
    machines.files["bootstrap", SNAPSHOT] = b"snapshot" * 300
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": "kube-system"},
    }
    shelf.put(account, *(api_stock.node(node.name, str(node.address), Ready="True") for node in site.cluster.masters))
    if smoke_test is not None:
        shelf.put(*smoke_test.webhook_objects(site.cluster.masters[0].name))
    made = PivotTestbed(site, etcd, pods, shelf)
    made.serve_from(*site.cluster.masters)
    made.hold_leases(site.cluster.masters[0])
    return made


def joined(site: Site) -> Etcdctl:
    rows = [Row(1, BOOTSTRAP_MEMBER, peer_url(site.cluster.bootstrap))]
    rows += [Row(number, node.name, peer_url(node)) for number, node in enumerate(site.cluster.masters, 2)]
    return Etcdctl(rows)


def as_kubelet(node_id: str, command: tuple[str, ...], stdin: bytes) -> Done | None:
    """What a kubelet gets that is known."""
    if command[0] != "curl":
        return None
    is_trusted = b"BEGIN CERTIFICATE" in stdin
    return Done(0, b'{"kind":"Node"}', b"") if is_trusted else Done(60, b"", b"curl: no authority")


def lease(name: str, holder: str, namespace: str = "kube-system") -> dict[str, Any]:
    head = {"name": name, "namespace": namespace}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": head, "spec": spec}


def endpoint_slice(addresses: list[str]) -> dict[str, Any]:
    head = {"name": "kubernetes", "namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"}}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": head,
        "addressType": "IPv4",
        "endpoints": [{"addresses": [one]} for one in addresses],
        "ports": [{"name": "https", "port": 6443}],
    }
