"""Asks through the load balancer without a pause: a new connection every 100 ms, and a watch that is kept open.

Runs in a thread with an event loop of its own while the pipeline works. A probe that fails is remembered with its
moment and its reason; a watch that is cut goes on from where it was, and must miss nothing.
"""

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from umbilical.cluster.client import ApiClient
from umbilical.cluster.errors import ApiRefused, ClusterError

PERIOD_SECONDS: Final = 0.1
# Of one probe, from the dial to the answer. Longer than any pause that a busy machine makes.
PROBE_SECONDS: Final = 20.0
MAX_OPEN: Final = 100
MAX_KEPT: Final = 50
STOP_SECONDS: Final = 30.0
_REQUEST: Final = b"GET /readyz HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"
# What an API server says of a version that it no longer has.
_GONE: Final = 410
WATCHED: Final = "/api/v1/namespaces/kube-system/configmaps"


@dataclass(frozen=True)
class Target:
    address: str
    port: int
    server_name: str
    """Of the certificate."""
    authority_pem: str


@dataclass(frozen=True)
class Miss:
    after_seconds: float
    """Since the first probe."""
    reason: str


@dataclass
class Tally:
    probes: int = 0
    failures: int = 0
    misses: list[Miss] = field(default_factory=list)
    """The first of them."""
    longest_seconds: float = 0.0
    watch_events: int = 0
    watch_cuts: int = 0
    watch_last: str = ""
    """The value that the watch saw last."""
    watch_trouble: str = ""

    def __str__(self) -> str:
        return f"{self.probes} probes, {self.failures} failed, the slowest {self.longest_seconds:.2f} s"


class Prober:
    """A context: probes run inside of it. `tally` may be read at any time."""

    def __init__(self, target: Target, make_client: Callable[[], ApiClient] | None = None, watched: str = "") -> None:
        self.tally = Tally()
        self._target = target
        self._make_client = make_client
        self._watched = watched
        """The name of a ConfigMap in kube-system whose `data.count` is followed; empty: no watch."""
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)
        self._stop = threading.Event()
        self._started = 0.0
        self._open = 0
        self._version = ""
        """Of the object that the watch saw last."""

    def __enter__(self) -> "Prober":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        asyncio.run(self._probe_all())

    async def _probe_all(self) -> None:
        context = ssl.create_default_context(cadata=self._target.authority_pem)
        self._started = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(self._watch()) if self._watched else None
            due = self._started
            while not self._stop.is_set():
                if self._open < MAX_OPEN:
                    self._open += 1
                    tasks.create_task(self._probe(context))
                else:
                    self._miss(f"{MAX_OPEN} probes are still waiting for an answer")
                due += PERIOD_SECONDS
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            if watch is not None:
                watch.cancel()

    async def _probe(self, context: ssl.SSLContext) -> None:
        start = time.monotonic()
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                answer = await self._ask(context)
            if b" 200 " not in answer.partition(b"\r\n")[0]:
                self._miss(answer.partition(b"\r\n")[0].decode(errors="replace") or "an empty answer")
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self._miss(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        finally:
            self._open -= 1
            self.tally.probes += 1
            self.tally.longest_seconds = max(self.tally.longest_seconds, time.monotonic() - start)

    async def _ask(self, context: ssl.SSLContext) -> bytes:
        target = self._target
        reader, writer = await asyncio.open_connection(
            target.address, target.port, ssl=context, server_hostname=target.server_name
        )
        try:
            writer.write(_REQUEST % target.server_name.encode())
            await writer.drain()
            return await reader.read(4096)
        finally:
            writer.close()

    def _miss(self, reason: str) -> None:
        self.tally.failures += 1
        if len(self.tally.misses) < MAX_KEPT:
            self.tally.misses.append(Miss(time.monotonic() - self._started, reason))

    async def _watch(self) -> None:
        """Follow one object; whatever cuts the watch, it goes on from the version that it saw last."""
        assert self._make_client is not None
        async with self._make_client() as client:
            while True:
                try:
                    await self._follow(client)
                except ClusterError as error:
                    self.tally.watch_trouble = error.brief
                    if isinstance(error, ApiRefused) and error.status == _GONE:
                        self._version = ""
                    await asyncio.sleep(PERIOD_SECONDS)
                self.tally.watch_cuts += 1

    async def _follow(self, client: ApiClient) -> None:
        query = {"fieldSelector": f"metadata.name={self._watched}", "allowWatchBookmarks": "true"}
        if self._version:
            query["resourceVersion"] = self._version
        async with client.watch(WATCHED, query) as events:
            async for event in events:
                self._version = str(event["object"]["metadata"]["resourceVersion"])
                if event["type"] in ("ADDED", "MODIFIED"):
                    self.tally.watch_events += 1
                    self.tally.watch_last = str((event["object"].get("data") or {}).get("count", ""))


def tally_json(tally: Tally) -> str:
    """Write a tally for the record."""
    misses = [{"after_seconds": round(one.after_seconds, 2), "reason": one.reason} for one in tally.misses]
    return json.dumps({"probes": tally.probes, "failures": tally.failures, "misses": misses})
