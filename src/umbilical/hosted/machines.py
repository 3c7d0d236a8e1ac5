"""The Cluster API Machines of a hosted cluster's nodes, in the namespace of its control plane: a node's address without
a kubeconfig of the hosted cluster."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.objects import ApiKind
from umbilical.fault import ApiRefused, HostedError

KUBELET_PORT: Final = 10250
# Older management clusters serve only the first.
_KINDS: Final = tuple(ApiKind("Machine", f"/apis/cluster.x-k8s.io/{one}", "machines") for one in ("v1beta1", "v1beta2"))


@dataclass(frozen=True)
class NodeMachine:
    name: str
    node: str
    """Empty until the node has joined."""
    address: str

    @property
    def title(self) -> str:
        return f"node {self.node} at {self.address}" if self.node else f"Machine {self.name} at {self.address}"

    def kubelet_url(self, path: str) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"https://{host}:{KUBELET_PORT}{path}"


async def find_machine(client: ApiClient, namespace: str, wanted: str | None) -> NodeMachine:
    """Return the Machine of that name or of that node; None: the first with an address.

    Raises HostedError (there is none), ClusterError.
    """
    machines = [machine for item in await _listed(client, namespace) for machine in _with_address(item)]
    for machine in machines:
        if wanted in (None, machine.node, machine.name):
            return machine
    known = ", ".join(machine.node or machine.name for machine in machines)
    raise HostedError(
        "UMB579",
        f"{namespace} has no Machine with an address" + (f" for node {wanted}" if wanted else ""),
        f"Machines with an InternalIP: {known or 'none'}",
        f"kubectl -n {namespace} get machines.cluster.x-k8s.io -o wide; or give the URL: https://ADDRESS:{KUBELET_PORT}/",
    )


async def _listed(client: ApiClient, namespace: str) -> list[Json]:
    for kind in _KINDS:
        try:
            return await objects.list_objects(client, kind, namespace)
        except ApiRefused as refusal:
            if refusal.status != 404:
                raise
    return []


def _with_address(item: Json) -> Iterator[NodeMachine]:
    name, node = objects.metadata(item).get("name"), objects.field(item, "status", "nodeRef", "name")
    for entry in objects.items(objects.field(item, "status", "addresses")):
        if entry.get("type") == "InternalIP":
            yield NodeMachine(str(name), str(node or ""), str(entry.get("address")))
            return
