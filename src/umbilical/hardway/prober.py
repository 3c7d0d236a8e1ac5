"""Probes the API through the load balancer: a new connection every 100 ms, and a watch.

The watch follows a counter in the cluster. After each interruption it must resume and miss no change.
"""

import asyncio
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.fault import ApiRefused, ClusterError

NAMESPACE: Final = "kube-system"
COUNTER_NAME: Final = "umbilical-pivot"
COUNT_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 0.1
# Status codes: the resourceVersion is too old; the object does not exist.
_GONE: Final = 410
_NOT_FOUND: Final = 404


class Counter:
    """Writes and watches a counter; the fields may be read at any time."""

    def __init__(self) -> None:
        self.first: int | None = None
        """The number at the start; None until the API has returned it."""
        self.written = 0
        """The last number that the API accepted."""
        self.seen = 0
        """The last number that the watch delivered."""
        self.events = 0
        self.missed = 0
        """Numbers that were written and not delivered."""
        self.cuts = 0
        """How often the watch ended and was resumed."""
        self.trouble = ""
        """The last error of the API."""
        self._version = ""

    async def count(self, client: ApiClient) -> None:
        """Increment the counter until cancelled; a failed write is retried."""
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
        """Watch until cancelled, each time from the last resourceVersion."""
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
        query = {"fieldSelector": f"metadata.name={COUNTER_NAME}", "allowWatchBookmarks": "true"}
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
        path = objects.CONFIG_MAP.path(NAMESPACE, COUNTER_NAME)
        try:
            await client.request("PATCH", path, body=patch, content_type="application/merge-patch+json")
        except ApiRefused as refusal:
            if refusal.status != _NOT_FOUND:
                raise
            await client.request("POST", objects.CONFIG_MAP.path(NAMESPACE), body=_config_map(number))


async def _left(client: ApiClient) -> int:
    """Return the number that an earlier run left: counting continues there."""
    return _number(await objects.get(client, objects.CONFIG_MAP, COUNTER_NAME, NAMESPACE) or {})


def _number(item: Json) -> int:
    return int(objects.field(item, "data", "count") or 0)


def _config_map(number: int) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": COUNTER_NAME, "namespace": NAMESPACE},
        "data": {"count": str(number)},
    }


PERIOD_SECONDS: Final = 0.1
# Timeout of one probe, from dial to answer; longer than any pause of a busy machine.
PROBE_SECONDS: Final = 30.0
MAX_OPEN: Final = 200
MAX_KEPT: Final = 50
STOP_SECONDS: Final = 60.0
MAX_ANSWER_BYTES: Final = 4096
_REQUEST: Final = b"GET /readyz HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True)
class ProbeTarget:
    address: str
    port: int
    server_name: str
    """Name in the certificate."""
    authority_pem: str


@dataclass(frozen=True)
class FailedProbe:
    after_seconds: float
    """Seconds since the first probe."""
    reason: str


@dataclass
class ProbeTally:
    probes: int = 0
    failures: int = 0
    misses: list[FailedProbe] = field(default_factory=list)
    """Only the first MAX_KEPT."""
    longest_seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.probes} probes, {self.failures} failed, the slowest took {self.longest_seconds:.2f} s"


class Prober:
    """Probes run between `start` and `stop`. `tally` and `counter` may be read at any time."""

    def __init__(self, target: ProbeTarget, make_client: Callable[[], ApiClient] | None = None) -> None:
        self.tally = ProbeTally()
        self.counter = Counter()
        self._target = target
        self._make_client = make_client
        """None: probes only, no watch."""
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)
        self._stop = threading.Event()
        self._started = 0.0
        self._open = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, after waiting for open probes. Idempotent."""
        self._stop.set()
        self._thread.join(STOP_SECONDS)

    def __enter__(self) -> "Prober":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except Exception as error:
            # A prober that ended early saw no failure, which must not count as success.
            self._miss(f"the probes ended early: {_cause(error)}")

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            followers = [] if self._make_client is None else [tasks.create_task(self._follow(self._make_client))]
            await self._probe_until_stopped(tasks)
            for follower in followers:
                follower.cancel()
        # Aborted transports close their sockets in the next iterations of the loop.
        await asyncio.sleep(PERIOD_SECONDS)

    async def _follow(self, make_client: Callable[[], ApiClient]) -> None:
        async with make_client() as writer, make_client() as watcher, asyncio.TaskGroup() as both:
            both.create_task(self.counter.count(writer))
            both.create_task(self.counter.follow(watcher))

    async def _probe_until_stopped(self, tasks: asyncio.TaskGroup) -> None:
        context = ssl.create_default_context(cadata=self._target.authority_pem)
        self._started = due = time.monotonic()
        while not self._stop.is_set():
            if self._open < MAX_OPEN:
                self._open += 1
                tasks.create_task(self._probe(context))
            else:
                self._miss(f"{MAX_OPEN} probes are still waiting for an answer")
            due += PERIOD_SECONDS
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _probe(self, context: ssl.SSLContext) -> None:
        start = time.monotonic()
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                answer = await self._ask(context)
            head = answer.partition(b"\r\n")[0]
            if b" 200 " not in head:
                self._miss(head.decode(errors="replace") or "the connection was closed without an answer")
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
            return await reader.read(MAX_ANSWER_BYTES)
        finally:
            # abort, not close: close would wait for a peer that may not answer.
            writer.transport.abort()

    def _miss(self, reason: str) -> None:
        self.tally.failures += 1
        if len(self.tally.misses) < MAX_KEPT:
            self.tally.misses.append(FailedProbe(time.monotonic() - self._started, reason))


def _cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
