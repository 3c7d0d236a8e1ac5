"""Keeps the node alive in the API: registered, Ready, its lease renewed; again and again, whatever the API does."""

import asyncio
import logging
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from umbilical.cluster.client import ApiClient
from umbilical.fault import ApiRefused, ClusterError
from umbilical.lab.pods import node_object
from umbilical.lab.pods.node import Node
from umbilical.lab.pods.node_object import LEASE_NAMESPACE, Machine

log: Final = logging.getLogger(__name__)

NODES: Final = "/api/v1/nodes"
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"
HEARTBEAT_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 1.0
CONFLICT_SECONDS: Final = 0.05
# Go's names, which Kubernetes uses in labels.
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


class NodeKeeper:
    def __init__(self, node: Node, client: ApiClient, machine: Machine) -> None:
        self._node, self._client, self._machine = node, client, machine
        self._path = f"{NODES}/{node.name}"
        self._trouble = ""

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            try:
                await self.beat(time.time())
                self._tell("")
                await asyncio.sleep(HEARTBEAT_SECONDS)
            except ClusterError as error:
                # A conflict is no trouble: the controller-manager writes to new nodes, too.
                if not (isinstance(error, ApiRefused) and error.status == 409):
                    self._tell(error.brief)
                    await asyncio.sleep(RETRY_SECONDS)
                await asyncio.sleep(CONFLICT_SECONDS)

    async def beat(self, now: float) -> None:
        """Bring the API's picture of the node up to date once."""
        found = await self._get(self._path) or await self._register()
        if node_object.needs_telling(found.get("status") or {}, self._node, now):
            found["status"] = node_object.node_status(self._node, self._machine, found.get("status") or {}, now)
            found = await self._client.request("PUT", f"{self._path}/status", body=found)
        await self._renew_lease(str(found["metadata"]["uid"]), now)
        await self._take_taint_off(found)

    async def _register(self) -> dict[str, Any]:
        try:
            found = await self._client.request("POST", NODES, body=node_object.node_object(self._node, self._machine))
        except ApiRefused as refusal:
            if refusal.status != 403:
                raise
            plain = node_object.node_object(self._node, self._machine, with_roles=False)
            found = await self._client.request("POST", NODES, body=plain)
            log.info("registered without roles, which a node may not give itself: %s", refusal.message)
        log.info("node %s is registered", self._node.name)
        return found

    async def _renew_lease(self, uid: str, now: float) -> None:
        path = f"{LEASES}/{self._node.name}"
        text = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        known = await self._get(path)
        lease = node_object.lease_object(self._node, uid, text, known)
        if known is None:
            await self._client.request("POST", LEASES, body=lease)
        else:
            await self._client.request("PUT", path, body=lease)

    async def _take_taint_off(self, found: dict[str, Any]) -> None:
        """The controller-manager does so, too, where there is one; a node that may not leaves it to that one."""
        untainted = node_object.without_not_ready(found)
        if untainted is None:
            return
        try:
            await self._client.request("PUT", self._path, body=untainted)
        except ApiRefused as refusal:
            log.debug("the taint stays for the controller-manager: %s", refusal.message)

    async def _get(self, path: str) -> dict[str, Any] | None:
        try:
            return await self._client.request("GET", path)
        except ApiRefused as refusal:
            if refusal.status == 404:
                return None
            raise

    def _tell(self, trouble: str) -> None:
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
