"""The pods that the API binds to this node: a list, then a watch, then a list again when that breaks."""

import asyncio
import logging
from typing import Any, Final

from umbilical.cluster.client import ApiClient
from umbilical.fault import ClusterError
from umbilical.lab.pods.node import Changed

log: Final = logging.getLogger(__name__)

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
