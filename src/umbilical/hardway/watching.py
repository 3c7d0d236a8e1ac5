"""A counter in the cluster and a watch that follows it: whoever cuts the watch, it must go on and miss nothing."""

import asyncio
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.fault import ApiRefused, ClusterError

NAMESPACE: Final = "kube-system"
NAME: Final = "umbilical-pivot"
COUNT_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 0.1
# What an API server says of a version that it no longer has, and of an object that is not there.
_GONE: Final = 410
_NOT_FOUND: Final = 404


class Counter:
    """Both ends of it; read the fields at any time."""

    def __init__(self) -> None:
        self.first: int | None = None
        """The number that an earlier run left; None until the API has told."""
        self.written = 0
        """The last number that the API took."""
        self.seen = 0
        """The last number that the watch brought."""
        self.events = 0
        self.missed = 0
        """Numbers that were written and never came."""
        self.cuts = 0
        """How often the watch ended and was taken up again."""
        self.trouble = ""
        """What the API said last when it refused."""
        self._version = ""

    async def count(self, client: ApiClient) -> None:
        """Raise the number for ever; a write that fails is tried again."""
        while True:
            try:
                if self.first is None:
                    self.first = self.written = await _left(client)
                await self._write(client, self.written + 1)
                self.written += 1
            except ClusterError as error:
                self.trouble = error.brief
            await asyncio.sleep(COUNT_SECONDS)

    async def follow(self, client: ApiClient) -> None:
        """Watch for ever, each time from the version that was seen last."""
        while True:
            try:
                await self._watch(client)
            except ClusterError as error:
                self.trouble = error.brief
                if isinstance(error, ApiRefused) and error.status == _GONE:
                    self._version = ""
            self.cuts += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def _watch(self, client: ApiClient) -> None:
        query = {"fieldSelector": f"metadata.name={NAME}", "allowWatchBookmarks": "true"}
        if self._version:
            query["resourceVersion"] = self._version
        async with client.watch(objects.CONFIG_MAP.path(NAMESPACE), query) as events:
            async for event in events:
                self._version = str(objects.metadata(event["object"]).get("resourceVersion"))
                if event["type"] in ("ADDED", "MODIFIED"):
                    self._see(_number(event["object"]))

    def _see(self, number: int) -> None:
        self.events += 1
        if self.seen:
            self.missed += max(0, number - self.seen - 1)
        self.seen = number

    async def _write(self, client: ApiClient, number: int) -> None:
        patch = {"data": {"count": str(number)}}
        path = objects.CONFIG_MAP.path(NAMESPACE, NAME)
        try:
            await client.request("PATCH", path, body=patch, content_type="application/merge-patch+json")
        except ApiRefused as refusal:
            if refusal.status != _NOT_FOUND:
                raise
            await client.request("POST", objects.CONFIG_MAP.path(NAMESPACE), body=_config_map(number))


async def _left(client: ApiClient) -> int:
    """Go on where a run that was killed ended: else its last number would pass for one that was seen now."""
    return _number(await objects.get(client, objects.CONFIG_MAP, NAME, NAMESPACE) or {})


def _number(item: Json) -> int:
    return int(objects.field(item, "data", "count") or 0)


def _config_map(number: int) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "data": {"count": str(number)},
    }
