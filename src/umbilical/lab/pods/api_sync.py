"""Connects a node to the API: runs the pods bound to it, reports their status, and removes deleted pods.

bound -> runs here, status reported on every change -> deletion requested -> stops here -> deleted from the API

Also gets Secrets, ConfigMaps and tokens for pods.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from umbilical.cluster.client import ApiClient, make_client
from umbilical.cluster.objects import CONFIG_MAP, POD, SECRET, ApiKind
from umbilical.fault import ApiRefused, ClusterError, PodError, PodWaiting
from umbilical.lab.pods.fields import Fields
from umbilical.lab.pods.manifest import pod as read_pod
from umbilical.lab.pods.node import GRACE_CAP_SECONDS, Changed, RunnerNode, Sources
from umbilical.lab.pods.node_keeper import NodeKeeper, by_type, this_machine
from umbilical.lab.pods.pod_table import PodTable, PodWorker
from umbilical.lab.pods.spec import LabPod, SourceKind
from umbilical.lab.pods.static_pods import values
from umbilical.lab.pods.status import PodRecord, api_status, phase

log: Final = logging.getLogger(__name__)

_KINDS: Final[Mapping[SourceKind, ApiKind]] = {SourceKind.SECRET: SECRET, SourceKind.CONFIG_MAP: CONFIG_MAP}


class ApiObjects:
    """Implements `Sources`."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def values(self, kind: SourceKind, namespace: str, name: str) -> Mapping[str, bytes] | None:
        found = await self._request("GET", _KINDS[kind].path(namespace, name), None)
        return None if found is None else values(kind, Fields(found, kind.value))

    async def token(self, pod: LabPod, audience: str, lifetime_seconds: int) -> str | None:
        path = f"/api/v1/namespaces/{pod.namespace}/serviceaccounts/{pod.service_account}/token"
        answer = await self._request("POST", path, token_request(pod, audience, lifetime_seconds))
        return None if answer is None else str(answer.get("status", {}).get("token", "")) or None

    async def _request(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any] | None:
        try:
            return await self._client.request(method, path, body=body)
        except ApiRefused as refusal:
            if refusal.status == 404:
                return None
            # Also 403: the node authorizer learns of a new pod a moment later.
            raise _later(refusal) from refusal
        except ClusterError as error:
            raise _later(error) from error


def token_request(pod: LabPod, audience: str, lifetime_seconds: int) -> dict[str, Any]:
    """Return a TokenRequest bound to the pod: the token is invalid once the pod is gone."""
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": [audience] if audience else [],
            "expirationSeconds": lifetime_seconds,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid},
        },
    }


def _later(error: ClusterError) -> PodWaiting:
    return PodWaiting("UMB834", error.what, error.why, error.remedy, "ContainerCreating")


PODS: Final = "/api/v1/pods"
WATCH_SECONDS: Final = 300
RETRY_SECONDS: Final = 0.5
RETRY_CAP_SECONDS: Final = 5.0


class PodWatch:
    """`pods` is the last known state by uid; it stays while the API is unreachable."""

    def __init__(self, client: ApiClient, node: str, changed: Changed) -> None:
        self._client = client
        self._changed = changed
        self._query = {"fieldSelector": f"spec.nodeName={node}"}
        self.pods: dict[str, dict[str, Any]] = {}

    async def run(self) -> None:
        """List and watch until cancelled."""
        pause = RETRY_SECONDS
        while True:
            try:
                version = await self._list()
                pause = RETRY_SECONDS
                while True:
                    version = await self._watch(version)
            except ClusterError as error:
                log.warning("pods: %s", error.brief)
            await asyncio.sleep(pause)
            pause = min(pause * 2, RETRY_CAP_SECONDS)

    def keep(self, pod: dict[str, Any]) -> None:
        """Store a newer version, returned by a write of ours."""
        uid = _uid(pod)
        if uid in self.pods:
            self.pods[uid] = pod

    async def _list(self) -> str:
        answer = await self._client.request("GET", PODS, query=self._query)
        self.pods = {_uid(item): item for item in answer.get("items") or []}
        self._changed()
        return str((answer.get("metadata") or {}).get("resourceVersion", ""))

    async def _watch(self, version: str) -> str:
        query = {**self._query, "resourceVersion": version, "allowWatchBookmarks": "true"}
        async with self._client.watch(PODS, {**query, "timeoutSeconds": str(WATCH_SECONDS)}) as events:
            async for event in events:
                version = self._apply(event) or version
        return version

    def _apply(self, event: dict[str, Any]) -> str:
        pod = event["object"]
        match event.get("type"):
            case "ADDED" | "MODIFIED":
                self.pods[_uid(pod)] = pod
            case "DELETED":
                self.pods.pop(_uid(pod), None)
        self._changed()
        return str((pod.get("metadata") or {}).get("resourceVersion", ""))


def _uid(pod: dict[str, Any]) -> str:
    return str((pod.get("metadata") or {}).get("uid", ""))


SOURCE: Final = "api"
# Changes come in bursts; only the last state is reported.
GATHER_SECONDS: Final = 0.1
# Pause before a failed request is retried.
AGAIN_SECONDS: Final = 1.0
# For several nodes on one machine; far below the API's own limits.
REQUESTS_PER_SECOND: Final = 50.0
FINISHED: Final = ("Succeeded", "Failed")
MakeWorker = Callable[[LabPod, Sources], PodWorker]


class ApiSync:
    def __init__(self, node: RunnerNode, kubeconfig: Path, table: PodTable, make_worker: MakeWorker) -> None:
        self._node, self._kubeconfig = node, kubeconfig
        self._table, self._make_worker = table, make_worker
        self.changed = asyncio.Event()
        """Set it when a pod of the table changes."""
        self._reported: dict[str, dict[str, Any]] = {}
        self._refused: set[str] = set()

    async def run(self) -> None:
        """Keep node and API in sync until cancelled."""
        async with await self._connect() as client, asyncio.TaskGroup() as group:
            watch = PodWatch(client, self._node.name, self.changed.set)
            group.create_task(NodeKeeper(self._node, client, this_machine()).run())
            group.create_task(watch.run())
            group.create_task(self._keep_in_sync(client, watch))

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
                # The kubeconfig may be written after this program starts.
                log.warning("%s", error.brief)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _keep_in_sync(self, client: ApiClient, watch: PodWatch) -> None:
        sources = ApiObjects(client)
        while True:
            self.changed.clear()
            self._run_pods(watch.pods, sources)
            is_done = await self._report_all(client, watch)
            try:
                async with asyncio.timeout(None if is_done else AGAIN_SECONDS):
                    await self.changed.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(GATHER_SECONDS)

    def _run_pods(self, pods: dict[str, dict[str, Any]], sources: Sources) -> None:
        wanted: dict[str, LabPod] = {}
        for uid, found in pods.items():
            grace = deletion_grace(found)
            if grace is not None:
                self._table.stop(uid, grace)
            elif self._table.record(uid) is not None or status_of(found).get("phase") not in FINISHED:
                pod = self._read(uid, found)
                wanted |= {} if pod is None else {uid: pod}
        self._table.want(SOURCE, wanted, lambda pod: self._make_worker(pod, sources))
        self._reported = {uid: status for uid, status in self._reported.items() if uid in pods}

    def _read(self, uid: str, found: dict[str, Any]) -> LabPod | None:
        try:
            return read_pod(found)
        except PodError as error:
            if uid not in self._refused:
                self._refused.add(uid)
                log.warning("%s", error.brief)
            return None

    async def _report_all(self, client: ApiClient, watch: PodWatch) -> bool:
        """Report changes to the API; return False if something must be retried."""
        is_done = True
        for uid, found in list(watch.pods.items()):
            try:
                await self._report(client, watch, uid, found)
            except ApiRefused as refusal:
                # 404: deleted meanwhile. 409: changed meanwhile. The watch reports both, and then we retry.
                is_done = refusal.status == 404 and is_done
                if refusal.status not in (404, 409):
                    log.warning("status: %s", refusal.brief)
            except ClusterError as error:
                log.warning("status: %s", error.brief)
                return False
        return is_done

    async def _report(self, client: ApiClient, watch: PodWatch, uid: str, found: dict[str, Any]) -> None:
        record = self._table.record(uid)
        if record is None:
            if deletion_grace(found) is not None:
                await client.request("DELETE", _path(found), body=_removal(uid))
            return
        essence = api_status(record, {}, 0.0)
        if self._reported.get(uid) == essence and not contradicts(status_of(found), record):
            return
        status = api_status(record, status_of(found), time.time())
        watch.keep(await client.request("PUT", f"{_path(found)}/status", body={**found, "status": status}))
        self._reported[uid] = essence


def deletion_grace(found: dict[str, Any]) -> float | None:
    """Return the grace period of a deleted pod in seconds; None if it is not being deleted."""
    metadata = found.get("metadata") or {}
    if not metadata.get("deletionTimestamp"):
        return None
    seconds = metadata.get("deletionGracePeriodSeconds")
    return min(float(seconds), GRACE_CAP_SECONDS) if isinstance(seconds, int) else GRACE_CAP_SECONDS


def contradicts(status: dict[str, Any], record: PodRecord) -> bool:
    """Return whether the status in the API is wrong: the controller-manager changes it when a node is silent."""
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
