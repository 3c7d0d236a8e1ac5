"""Keeps the node registered and Ready in the API and renews its lease, with retries."""

import asyncio
import logging
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from umbilical import __version__
from umbilical.cluster.client import ApiClient
from umbilical.fault import ApiRefused, ClusterError
from umbilical.lab.pods.node import RunnerNode
from umbilical.lab.pods.status import stamp

KUBELET_PORT: Final = 10250
MAX_PODS: Final = 110
NOT_READY: Final = "node.kubernetes.io/not-ready"
ROLE_PREFIX: Final = "node-role.kubernetes.io/"
LEASE_NAMESPACE: Final = "kube-node-lease"
# The kubelet's; also the controller-manager's grace period for a silent node.
LEASE_SECONDS: Final = 40
# Conditions with an older heartbeat are reported again.
STATUS_SECONDS: Final = 60.0
_PRESSURES: Final = {
    "MemoryPressure": "KubeletHasSufficientMemory",
    "DiskPressure": "KubeletHasNoDiskPressure",
    "PIDPressure": "KubeletHasSufficientPID",
}


@dataclass(frozen=True)
class Machine:
    """Resources of this machine; every node reports all of them."""

    processors: int
    memory_kilobytes: int
    kernel: str
    architecture: str


def node_object(node: RunnerNode, machine: Machine, *, with_roles: bool = True) -> dict[str, Any]:
    """Return the Node to register. With NodeRestriction a node may not set its own roles."""
    labels = {
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": machine.architecture,
        **(node.labels or {}),
    }
    if not with_roles:
        labels = {key: value for key, value in labels.items() if not key.startswith(ROLE_PREFIX)}
    networks = [str(network) for network in node.pod_networks]
    spec = {"podCIDR": networks[0], "podCIDRs": networks} if networks else {}
    metadata = {"name": node.name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}


def node_status(node: RunnerNode, machine: Machine, previous: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return a v1 NodeStatus; fields of others in the previous one stay."""
    capacity = {"cpu": str(machine.processors), "memory": f"{machine.memory_kilobytes}Ki", "pods": str(MAX_PODS)}
    addresses = [{"type": "InternalIP", "address": address} for address in node.addresses]
    return {
        **previous,
        "capacity": capacity,
        "allocatable": capacity,
        "addresses": [*addresses, {"type": "Hostname", "address": node.name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
        "conditions": _conditions(previous.get("conditions"), now),
        "nodeInfo": _node_info(machine),
    }


def needs_update(previous: Mapping[str, Any], node: RunnerNode, now: float) -> bool:
    """Return whether the status in the API is wrong or too old."""
    known = by_type(previous.get("conditions"))
    ready = known.get("Ready", {})
    is_current = str(ready.get("lastHeartbeatTime", "")) >= stamp(now - STATUS_SECONDS)
    internal = [each.get("address") for each in previous.get("addresses") or [] if each.get("type") == "InternalIP"]
    return ready.get("status") != "True" or not is_current or internal != list(node.addresses)


def without_not_ready(found: dict[str, Any]) -> dict[str, Any] | None:
    """Return the node without its initial not-ready taint; None if it has none."""
    taints = (found.get("spec") or {}).get("taints") or []
    kept = [taint for taint in taints if taint.get("key") != NOT_READY]
    if len(kept) == len(taints):
        return None
    return {**found, "spec": {**found["spec"], "taints": kept}}


def lease_object(node: RunnerNode, uid: str, now_text: str, previous: Mapping[str, Any] | None) -> dict[str, Any]:
    metadata = dict(previous["metadata"]) if previous else {"name": node.name, "namespace": LEASE_NAMESPACE}
    metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": uid}]
    spec = {"holderIdentity": node.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now_text}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def by_type(conditions: Any) -> dict[str, dict[str, Any]]:
    entries = conditions if isinstance(conditions, list) else []
    return {str(entry.get("type")): entry for entry in entries if isinstance(entry, dict)}


def _conditions(previous: Any, now: float) -> list[dict[str, Any]]:
    conditions = by_type(previous)
    wanted = {kind: ("False", reason) for kind, reason in _PRESSURES.items()} | {"Ready": ("True", "KubeletReady")}
    for kind, (status, reason) in wanted.items():
        known = conditions.get(kind, {})
        since = known.get("lastTransitionTime") if known.get("status") == status else None
        conditions[kind] = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": "pods run as processes under umbilical's podrunner",
            "lastHeartbeatTime": stamp(now),
            "lastTransitionTime": since or stamp(now),
        }
    return list(conditions.values())


def _node_info(machine: Machine) -> dict[str, str]:
    return {
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
        "kernelVersion": machine.kernel,
        "osImage": "umbilical lab",
        "containerRuntimeVersion": f"process://{__version__}",
        "kubeletVersion": f"v{__version__}-umbilical",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": machine.architecture,
    }


log: Final = logging.getLogger(__name__)

NODES: Final = "/api/v1/nodes"
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"
HEARTBEAT_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 1.0
CONFLICT_SECONDS: Final = 0.05
# Go's names, which Kubernetes uses in labels.
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


class NodeKeeper:
    def __init__(self, node: RunnerNode, client: ApiClient, machine: Machine) -> None:
        self._node, self._client, self._machine = node, client, machine
        self._path = f"{NODES}/{node.name}"
        self._trouble = ""

    async def run(self) -> None:
        """Update periodically until cancelled."""
        while True:
            try:
                await self.beat(time.time())
                self._log_trouble("")
                await asyncio.sleep(HEARTBEAT_SECONDS)
            except ClusterError as error:
                # Conflicts are normal: the controller-manager writes to new nodes too.
                if not (isinstance(error, ApiRefused) and error.status == 409):
                    self._log_trouble(error.brief)
                    await asyncio.sleep(RETRY_SECONDS)
                await asyncio.sleep(CONFLICT_SECONDS)

    async def beat(self, now: float) -> None:
        """Update Node, status and lease once."""
        found = await self._get(self._path) or await self._register()
        if needs_update(found.get("status") or {}, self._node, now):
            found["status"] = node_status(self._node, self._machine, found.get("status") or {}, now)
            found = await self._client.request("PUT", f"{self._path}/status", body=found)
        await self._renew_lease(str(found["metadata"]["uid"]), now)
        await self._remove_taint(found)

    async def _register(self) -> dict[str, Any]:
        try:
            found = await self._client.request("POST", NODES, body=node_object(self._node, self._machine))
        except ApiRefused as refusal:
            if refusal.status != 403:
                raise
            plain = node_object(self._node, self._machine, with_roles=False)
            found = await self._client.request("POST", NODES, body=plain)
            log.info("registered without role labels, which a node may not set: %s", refusal.message)
        log.info("registered node %s", self._node.name)
        return found

    async def _renew_lease(self, uid: str, now: float) -> None:
        path = f"{LEASES}/{self._node.name}"
        text = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        known = await self._get(path)
        lease = lease_object(self._node, uid, text, known)
        if known is None:
            await self._client.request("POST", LEASES, body=lease)
        else:
            await self._client.request("PUT", path, body=lease)

    async def _remove_taint(self, found: dict[str, Any]) -> None:
        """Remove the not-ready taint; if forbidden, leave it to the controller-manager."""
        untainted = without_not_ready(found)
        if untainted is None:
            return
        try:
            await self._client.request("PUT", self._path, body=untainted)
        except ApiRefused as refusal:
            log.debug("left the not-ready taint to the controller-manager: %s", refusal.message)

    async def _get(self, path: str) -> dict[str, Any] | None:
        try:
            return await self._client.request("GET", path)
        except ApiRefused as refusal:
            if refusal.status == 404:
                return None
            raise

    def _log_trouble(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("%s", trouble) if trouble else log.info("the API answers again")


def this_machine() -> Machine:
    memory = next(
        (
            int(line.split()[1])
            for line in Path("/proc/meminfo").read_text().splitlines()
            if line.startswith("MemTotal:")
        ),
        0,
    )
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    return Machine(os.cpu_count() or 1, memory, platform.release(), architecture)
