"""The API's side of a node: its pods run here, their status is told there, and those that are deleted are let go.

bound -> runs here, status told on every change -> deletion asked for -> stops here -> removed there
"""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from umbilical.cluster.client import ApiClient, make_client
from umbilical.cluster.objects import POD
from umbilical.fault import ApiRefused, ClusterError, PodError
from umbilical.lab.pods.api_objects import ApiObjects
from umbilical.lab.pods.manifest import pod as read_pod
from umbilical.lab.pods.node import GRACE_CAP_SECONDS, Node, Sources
from umbilical.lab.pods.node_keeper import NodeKeeper, this_machine
from umbilical.lab.pods.node_object import by_type
from umbilical.lab.pods.pod_table import PodTable
from umbilical.lab.pods.pod_watch import PodWatch
from umbilical.lab.pods.pod_worker import PodWorker
from umbilical.lab.pods.records import PodRecord
from umbilical.lab.pods.spec import Pod
from umbilical.lab.pods.status import api_status, phase

log: Final = logging.getLogger(__name__)

SOURCE: Final = "api"
# Changes come in bursts; the API is told of the last one.
GATHER_SECONDS: Final = 0.1
# Something that failed (a conflict, an API that restarts) is tried again after this.
AGAIN_SECONDS: Final = 1.0
# Several nodes on one machine; the API's own limits are far away.
REQUESTS_PER_SECOND: Final = 50.0
FINISHED: Final = ("Succeeded", "Failed")
MakeWorker = Callable[[Pod, Sources], PodWorker]


class ApiSync:
    def __init__(self, node: Node, kubeconfig: Path, table: PodTable, make_worker: MakeWorker) -> None:
        self._node, self._kubeconfig = node, kubeconfig
        self._table, self._make_worker = table, make_worker
        self.changed = asyncio.Event()
        """To be set when a pod of the table changed."""
        self._told: dict[str, dict[str, Any]] = {}
        self._refused: set[str] = set()

    async def run(self) -> None:
        """Keep both sides in step until cancelled."""
        async with await self._connect() as client, asyncio.TaskGroup() as group:
            watch = PodWatch(client, self._node.name, self.changed.set)
            group.create_task(NodeKeeper(self._node, client, this_machine()).run())
            group.create_task(watch.run())
            group.create_task(self._keep_in_step(client, watch))

    async def _connect(self) -> ApiClient:
        while True:
            try:
                return make_client(
                    self._kubeconfig,
                    qps=REQUESTS_PER_SECOND,
                    burst=int(2 * REQUESTS_PER_SECOND),
                    user_agent="umbilical-podrunner",
                )
            except ClusterError as error:
                # It may be written later than this program is started.
                log.warning("%s", error.brief)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _keep_in_step(self, client: ApiClient, watch: PodWatch) -> None:
        sources = ApiObjects(client)
        while True:
            self.changed.clear()
            self._run_pods(watch.pods, sources)
            is_done = await self._tell_all(client, watch)
            try:
                async with asyncio.timeout(None if is_done else AGAIN_SECONDS):
                    await self.changed.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(GATHER_SECONDS)

    def _run_pods(self, pods: dict[str, dict[str, Any]], sources: Sources) -> None:
        wanted: dict[str, Pod] = {}
        for uid, found in pods.items():
            grace = deletion_grace(found)
            if grace is not None:
                self._table.stop(uid, grace)
            elif self._table.record(uid) is not None or status_of(found).get("phase") not in FINISHED:
                pod = self._read(uid, found)
                wanted |= {} if pod is None else {uid: pod}
        self._table.want(SOURCE, wanted, lambda pod: self._make_worker(pod, sources))
        self._told = {uid: told for uid, told in self._told.items() if uid in pods}

    def _read(self, uid: str, found: dict[str, Any]) -> Pod | None:
        try:
            return read_pod(found)
        except PodError as error:
            if uid not in self._refused:
                self._refused.add(uid)
                log.warning("%s", error.brief)
            return None

    async def _tell_all(self, client: ApiClient, watch: PodWatch) -> bool:
        """Tell the API what changed; return False if something has to be tried again."""
        is_done = True
        for uid, found in list(watch.pods.items()):
            try:
                await self._tell(client, watch, uid, found)
            except ApiRefused as refusal:
                # 404: gone meanwhile. 409: changed meanwhile. The watch brings both, and then it is tried again.
                is_done = refusal.status == 404 and is_done
                if refusal.status not in (404, 409):
                    log.warning("status: %s", refusal.brief)
            except ClusterError as error:
                log.warning("status: %s", error.brief)
                return False
        return is_done

    async def _tell(self, client: ApiClient, watch: PodWatch, uid: str, found: dict[str, Any]) -> None:
        record = self._table.record(uid)
        if record is None:
            if deletion_grace(found) is not None:
                await client.request("DELETE", _path(found), body=_removal(uid))
            return
        essence = api_status(record, {}, 0.0)
        if self._told.get(uid) == essence and not contradicts(status_of(found), record):
            return
        status = api_status(record, status_of(found), time.time())
        watch.keep(await client.request("PUT", f"{_path(found)}/status", body={**found, "status": status}))
        self._told[uid] = essence


def deletion_grace(found: dict[str, Any]) -> float | None:
    """Return how many seconds a pod has left to end; None if nobody asked for its deletion."""
    metadata = found.get("metadata") or {}
    if not metadata.get("deletionTimestamp"):
        return None
    seconds = metadata.get("deletionGracePeriodSeconds")
    return min(float(seconds), GRACE_CAP_SECONDS) if isinstance(seconds, int) else GRACE_CAP_SECONDS


def contradicts(status: dict[str, Any], record: PodRecord) -> bool:
    """Tell whether somebody else wrote what is not true: the controller-manager does when a node falls silent."""
    ready = by_type(status.get("conditions")).get("Ready", {}).get("status")
    is_over = phase(record) in FINISHED
    return status.get("phase") != phase(record) or (ready == "True") != (record.is_ready and not is_over)


def status_of(found: dict[str, Any]) -> dict[str, Any]:
    status = found.get("status")
    return status if isinstance(status, dict) else {}


def _path(found: dict[str, Any]) -> str:
    return POD.path(found["metadata"]["namespace"], found["metadata"]["name"])


def _removal(uid: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": uid},
    }
