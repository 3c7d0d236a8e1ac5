"""A node for tests of pods: folders of its own on this machine, whose network and programs it shares. Needs root."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from umbilical.lab.images import Image
from umbilical.lab.pods.manifest import pod
from umbilical.lab.pods.node import Folders, RunnerNode
from umbilical.lab.pods.pod_networks import PodNetworks
from umbilical.lab.pods.pod_table import PodWorker
from umbilical.lab.pods.spec import LabPod, SourceKind

IMAGE: Final = "localhost/shell:test"
WAIT_SECONDS: Final = 60.0


def make_node(folder: Path, back_off_seconds: float = 0.05, **changes: Any) -> RunnerNode:
    folders = Folders(*(folder / name for name in ("run", "logs", "state", "manifests", "daemons")))
    for place in (folders.container_root, folders.secrets, folders.logs, folders.manifests, folders.daemons):
        place.mkdir(parents=True)
    # A module makes it an image with the system around it, so that there is a shell.
    images = {IMAGE: Image(IMAGE, modules={"unused": "json.tool"})}
    node = RunnerNode("node-1", ("127.0.0.1",), images, back_off_seconds=back_off_seconds, folders=folders)
    return replace(node, **changes)


def shell_pod(script: str, *, spec: Mapping[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    """Write a manifest whose one container runs a script in the node's network."""
    main = {"name": "main", "image": IMAGE, "command": ["sh", "-c", script], **container}
    more = {"hostNetwork": True, "terminationGracePeriodSeconds": 1, **(spec or {})}
    metadata = {"name": "sample", "namespace": "test", "uid": "0123456789abcdef"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [main], **more}}


class Objects:
    """Secrets and ConfigMaps that a test puts there."""

    def __init__(self) -> None:
        self.known: dict[tuple[SourceKind, str, str], dict[str, bytes]] = {}
        self.tokens: list[tuple[str, int]] = []
        self.signs = False

    async def values(self, kind: SourceKind, namespace: str, name: str) -> Mapping[str, bytes] | None:
        return self.known.get((kind, namespace, name))

    async def token(self, pod: LabPod, audience: str, lifetime_seconds: int) -> str | None:
        self.tokens.append((audience, lifetime_seconds))
        return f"token {len(self.tokens)} of {pod.service_account}" if self.signs else None


def ignore() -> None:
    """Nobody wants to know of changes."""


@asynccontextmanager
async def running(
    node: RunnerNode, document: dict[str, Any], objects: Objects | None = None
) -> AsyncIterator[PodWorker]:
    """Run one pod until the end of the block."""
    worker = PodWorker(pod(document), node, objects or Objects(), PodNetworks(node), ignore)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(worker.run())
        try:
            yield worker
        finally:
            task.cancel()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not is_so():
            await asyncio.sleep(0.02)


def log_of(node: RunnerNode, worker: PodWorker, container: str = "main") -> str:
    """Read everything that the container printed."""
    folder = node.folders.pod_logs(worker.record.pod) / container
    files = sorted(folder.glob("*.log"), key=lambda path: int(path.stem)) if folder.is_dir() else []
    return "".join(path.read_text() for path in files)
