"""All pods of the node: starts wanted pods and stops others; a changed pod waits until its old version is gone.

A worker runs one pod, from its volumes to its last process.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from umbilical.fault import LabError, PodWaiting
from umbilical.lab.pods.container_worker import ContainerWorker
from umbilical.lab.pods.node import GRACE_CAP_SECONDS, Changed, RunnerNode, Sources
from umbilical.lab.pods.pod_context import PodContext, hostname
from umbilical.lab.pods.pod_networks import PodNetworks
from umbilical.lab.pods.spec import LabPod, RestartPolicy
from umbilical.lab.pods.status import PodRecord, record_of
from umbilical.lab.pods.volumes import PodVolumes

log: Final = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.5
# The kubelet refreshes about once a minute.
REFRESH_SECONDS: Final = 5.0


class PodWorker:
    """Start `run` as a task; cancelling the task stops the pod with its grace period."""

    def __init__(
        self, pod: LabPod, node: RunnerNode, sources: Sources, networks: PodNetworks, changed: Changed
    ) -> None:
        self.record: PodRecord = record_of(pod, node.address, time.time())
        self._pod, self._node, self._networks = pod, node, networks
        self._changed = changed
        self._volumes = PodVolumes(pod, node, sources)
        grace = min(float(pod.grace_seconds), GRACE_CAP_SECONDS)
        self._context = PodContext(node, pod, sources, grace, self._volumes.places)

    def shorten_grace(self, seconds: float) -> None:
        self._context.grace_seconds = min(self._context.grace_seconds, seconds)

    async def run(self) -> None:
        """Run the pod until cancelled; after its containers have ended its status stays."""
        log.info("%s: starting", self._pod.title)
        try:
            await self._prepare()
            if await self._initialize():
                await self._run_containers()
            await asyncio.Event().wait()
        finally:
            await self._clear()
            log.info("%s: removed", self._pod.title)

    async def _prepare(self) -> None:
        """Create network, volumes and files; retry until all they need exists."""
        while True:
            try:
                await self._join_network()
                await self._volumes.provide(self._context.addresses, time.time())
                self._write_files()
                self._report_trouble("")
                return
            except (LabError, OSError) as error:
                self._report_trouble(error.brief if isinstance(error, LabError) else str(error))
                await asyncio.sleep(RETRY_SECONDS if isinstance(error, PodWaiting) else 2 * RETRY_SECONDS)

    async def _join_network(self) -> None:
        if self._context.addresses:
            return
        if self._pod.uses_node_network:
            self._context.addresses = self._node.addresses
        else:
            self._context.network, self._context.addresses = await self._networks.attach(self._pod)
        self.record.addresses = self._context.addresses
        self._changed()

    def _write_files(self) -> None:
        folder = self._context.files / "etc"
        folder.mkdir(parents=True, exist_ok=True)
        if self._pod.uses_node_network:
            files = {"hosts": _node_file("/etc/hosts"), "hostname": f"{self._node.name}\n"}
        else:
            name = hostname(self._pod)
            files = {"hosts": _hosts(self._context.addresses, name), "hostname": f"{name}\n"}
        for file, text in {**files, "resolv.conf": _node_file("/etc/resolv.conf")}.items():
            (folder / file).write_text(text)

    async def _initialize(self) -> bool:
        """Run the init containers in order; return whether all succeeded."""
        again = RestartPolicy.NEVER if self._pod.restart_policy is RestartPolicy.NEVER else RestartPolicy.ON_FAILURE
        for container, record in zip(self._pod.init_containers, self.record.init_containers, strict=True):
            worker = ContainerWorker(container, record, self._context, self._changed)
            if await worker.run(again) != 0:
                return False
        self.record.is_initialized = True
        self._changed()
        return True

    async def _run_containers(self) -> None:
        async with asyncio.TaskGroup() as group:
            refreshing = group.create_task(self._refresh())
            runs = [
                group.create_task(
                    ContainerWorker(container, record, self._context, self._changed).run(self._pod.restart_policy)
                )
                for container, record in zip(self._pod.containers, self.record.containers, strict=True)
            ]
            await asyncio.wait(runs)
            refreshing.cancel()

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await self._volumes.refresh(self._context.addresses, time.time())
            except (LabError, OSError) as error:
                log.warning("%s: volumes: %s", self._pod.title, error)

    async def _clear(self) -> None:
        try:
            self._context.addresses, self._context.network = (), None
            self._volumes.remove()
            if not self._pod.uses_node_network:
                await self._networks.detach(self._pod)
        except (LabError, OSError) as error:
            log.warning("%s: could not clean up: %s", self._pod.title, error)

    def _report_trouble(self, text: str) -> None:
        if text != self.record.trouble:
            self.record.trouble = text
            if text:
                log.warning("%s: %s", self._pod.title, text)
            self._changed()


def _node_file(path: str) -> str:
    try:
        return Path(path).read_text()
    except FileNotFoundError:
        return ""


def _hosts(addresses: tuple[str, ...], name: str) -> str:
    own = "".join(f"{address}\t{name}\n" for address in addresses)
    return f"# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n{own}"


Make = Callable[[LabPod], PodWorker]
# Pause before a pod restarts after an unexpected error, e.g. a full disk.
AGAIN_SECONDS: Final = 5.0


class _Entry:
    def __init__(self, source: str, pod: LabPod, worker: PodWorker) -> None:
        self.source, self.pod, self.worker = source, pod, worker
        self.gone = asyncio.Event()
        self.is_stopping = False
        self.task: asyncio.Task[None] | None = None


class PodTable:
    """Pods by uid. Tasks run in the given group; cancelling it stops all pods in order."""

    def __init__(self, group: asyncio.TaskGroup, changed: Changed) -> None:
        self._group = group
        self._changed = changed
        self._entries: dict[str, _Entry] = {}

    def records(self) -> list[PodRecord]:
        return [entry.worker.record for entry in self._entries.values()]

    def record(self, uid: str) -> PodRecord | None:
        entry = self._entries.get(uid)
        return None if entry is None else entry.worker.record

    def want(self, source: str, pods: Mapping[str, LabPod], make: Make) -> None:
        """Set the pods of one source, by uid; others of that source are stopped."""
        for uid, entry in list(self._entries.items()):
            if entry.source == source and uid not in pods:
                self.stop(uid)
        for uid, pod in pods.items():
            if uid not in self._entries:
                self._begin(source, pod, make(pod))

    def shorten_grace(self, seconds: float) -> None:
        """Limit the grace period of all pods."""
        for entry in self._entries.values():
            entry.worker.shorten_grace(seconds)

    def stop(self, uid: str, grace_seconds: float | None = None) -> None:
        """Start to stop a pod; it leaves the table when it is gone. Idempotent."""
        entry = self._entries.get(uid)
        if entry is None or entry.is_stopping:
            return
        entry.is_stopping = True
        if grace_seconds is not None:
            entry.worker.shorten_grace(grace_seconds)
        if entry.task is not None:
            entry.task.cancel()

    def _begin(self, source: str, pod: LabPod, worker: PodWorker) -> None:
        before = [entry for entry in self._entries.values() if entry.pod.title == pod.title]
        entry = _Entry(source, pod, worker)
        self._entries[pod.uid] = entry
        entry.task = self._group.create_task(self._live(entry, before))

    async def _live(self, entry: _Entry, before: list[_Entry]) -> None:
        try:
            for older in before:
                await older.gone.wait()
            await self._run(entry)
        finally:
            del self._entries[entry.pod.uid]
            entry.gone.set()
            self._changed()

    async def _run(self, entry: _Entry) -> None:
        while True:
            try:
                await entry.worker.run()
            except Exception:
                log.exception("%s: unexpected error; restarting the pod", entry.pod.title)
            await asyncio.sleep(AGAIN_SECONDS)
