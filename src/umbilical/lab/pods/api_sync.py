"""The API's side of a node: its pods run here, their status is told there, and those that are deleted are let go.

bound -> runs here, status told on every change -> deletion asked for -> stops here -> removed there

Also what pods need of the API meanwhile: Secrets, ConfigMaps and tokens.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from umbilical.cluster.client import ApiClient, make_client
from umbilical.cluster.objects import CONFIG_MAP, POD, SECRET
from umbilical.cluster.objects import ResourceKind as ApiKind
from umbilical.fault import ApiRefused, ClusterError, PodError, PodWaiting
from umbilical.lab.pods.fields import Fields
from umbilical.lab.pods.manifest import pod as read_pod
from umbilical.lab.pods.node import GRACE_CAP_SECONDS, Changed, Node, Sources
from umbilical.lab.pods.node_keeper import NodeKeeper, by_type, this_machine
from umbilical.lab.pods.pod_table import PodTable, PodWorker
from umbilical.lab.pods.spec import Kind, Pod
from umbilical.lab.pods.static_pods import values
from umbilical.lab.pods.status import PodRecord, api_status, phase

log: Final = logging.getLogger(__name__)

_KINDS: Final[Mapping[Kind, ApiKind]] = {Kind.SECRET: SECRET, Kind.CONFIG_MAP: CONFIG_MAP}


class ApiObjects:
    """Fulfils `Sources`."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def values(self, kind: Kind, namespace: str, name: str) -> Mapping[str, bytes] | None:
        found = await self._ask("GET", _KINDS[kind].path(namespace, name), None)
        return None if found is None else values(kind, Fields(found, kind.value))

    async def token(self, pod: Pod, audience: str, lifetime_seconds: int) -> str | None:
        path = f"/api/v1/namespaces/{pod.namespace}/serviceaccounts/{pod.service_account}/token"
        answer = await self._ask("POST", path, token_request(pod, audience, lifetime_seconds))
        return None if answer is None else str(answer.get("status", {}).get("token", "")) or None

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any] | None:
        try:
            return await self._client.request(method, path, body=body)
        except ApiRefused as refusal:
            if refusal.status == 404:
                return None
            # 403, too: the node authorizer lets a node read what its pods need, a moment after it learnt of them.
            raise _later(refusal) from refusal
        except ClusterError as error:
            raise _later(error) from error


def token_request(pod: Pod, audience: str, lifetime_seconds: int) -> dict[str, Any]:
    """Ask for a token that is worth nothing once the pod is gone."""
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
    """`pods` is what the API said last, by uid; while it says nothing, that stays."""

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
        """Take in a newer version that came as the answer to a change of ours."""
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
