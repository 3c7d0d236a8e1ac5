"""All pods of the node: those wanted are begun, others stopped; a changed one waits until its older self is gone."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from umbilical.lab.pods.node import Changed
from umbilical.lab.pods.pod_worker import PodWorker
from umbilical.lab.pods.records import PodRecord
from umbilical.lab.pods.spec import Pod

log: Final = logging.getLogger(__name__)

Make = Callable[[Pod], PodWorker]
# After something that no pod should run into (a full disk), it begins anew.
AGAIN_SECONDS: Final = 5.0


class _Entry:
    def __init__(self, source: str, pod: Pod, worker: PodWorker) -> None:
        self.source, self.pod, self.worker = source, pod, worker
        self.gone = asyncio.Event()
        self.is_stopping = False
        self.task: asyncio.Task[None] | None = None


class PodTable:
    """Pods by uid. Tasks belong to the given group; cancelling that stops all pods in order."""

    def __init__(self, group: asyncio.TaskGroup, changed: Changed) -> None:
        self._group = group
        self._changed = changed
        self._entries: dict[str, _Entry] = {}

    def records(self) -> list[PodRecord]:
        return [entry.worker.record for entry in self._entries.values()]

    def record(self, uid: str) -> PodRecord | None:
        entry = self._entries.get(uid)
        return None if entry is None else entry.worker.record

    def want(self, source: str, pods: Mapping[str, Pod], make: Make) -> None:
        """Make the pods of one source be exactly these, by uid."""
        for uid, entry in list(self._entries.items()):
            if entry.source == source and uid not in pods:
                self.stop(uid)
        for uid, pod in pods.items():
            if uid not in self._entries:
                self._begin(source, pod, make(pod))

    def shorten_grace(self, seconds: float) -> None:
        """Let no pod take longer than this to end, whoever stops it."""
        for entry in self._entries.values():
            entry.worker.shorten_grace(seconds)

    def stop(self, uid: str, grace_seconds: float | None = None) -> None:
        """Begin to stop a pod; it is out of the table when it is gone. Stopping twice is fine."""
        entry = self._entries.get(uid)
        if entry is None or entry.is_stopping:
            return
        entry.is_stopping = True
        if grace_seconds is not None:
            entry.worker.shorten_grace(grace_seconds)
        if entry.task is not None:
            entry.task.cancel()

    def _begin(self, source: str, pod: Pod, worker: PodWorker) -> None:
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
                log.exception("%s: the runner stumbled; the pod begins anew", entry.pod.title)
            await asyncio.sleep(AGAIN_SECONDS)
