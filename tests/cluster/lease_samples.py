"""What the lease tests share: a namespace, leases at chosen times, and endless loops that end."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from tests.support.manual_clock import START

from umbilical.cluster.client import Json
from umbilical.cluster.labels import parse_selector
from umbilical.cluster.leases import leases_path

LABELS = {"k8s-app": "konnectivity-server"}
SELECTOR = parse_selector("k8s-app=konnectivity-server")
PATH = leases_path("kube-system")


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def lease(
    name: str, renewed_at: float, labels: dict[str, str] | None = None, version: str = "1", address: str = ""
) -> Json:
    metadata: Json = {"name": name, "resourceVersion": version, "labels": LABELS if labels is None else labels}
    if address:
        metadata["annotations"] = {"umbilical.dev/agent-address": address}
    return {"metadata": metadata, "spec": {"renewTime": at(renewed_at), "leaseDurationSeconds": 30}}


async def until(condition: Callable[[], bool], running: Coroutine[Any, Any, None]) -> None:
    """Run an endless coroutine until the condition holds, then cancel it."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(running)
        while not condition():
            await asyncio.sleep(0.002)
        task.cancel()
