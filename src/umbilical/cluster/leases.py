"""Leases publish the number of servers and their addresses: the server writes them, the agent counts them.

Names, times and retries are upstream's, so that both products count each other's servers. Both loops survive any
`ClusterError`: the API may be reachable only through the tunnel itself.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from umbilical.cluster.client import ApiClient, ClientClock, Json
from umbilical.cluster.labels import Labels, Selector, format_labels
from umbilical.fault import ApiRefused, ClusterError

ANNOTATION: Final = "umbilical.dev/agent-address"
_LAST_PORT: Final = 65535
_LONGEST: Final = 300
"""Longer than any DNS name with a port; bounds log lines from foreign leases."""
_WRITTEN: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[0-9A-Za-z._-]+)):(?P<port>[0-9]{1,5})")


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: object) -> tuple[str, int] | None:
    """Return host and port; None for invalid text, since others may write leases too."""
    if not isinstance(text, str) or len(text) > _LONGEST:
        return None
    found = _WRITTEN.fullmatch(text)
    if found is None or not 0 < int(found["port"]) <= _LAST_PORT:
        return None
    return found["v6"] or found["host"], int(found["port"])


def parse_owner(text: str) -> tuple[str, str]:
    """Return name and UID of a pod. Raises ValueError: one of them is missing."""
    name, _, uid = text.partition("/")
    if not name or not uid or "/" in uid:
        raise ValueError(f"not a pod's name and UID: {text}")
    return name, uid


log: Final = logging.getLogger(__name__)

# Called after each answered request with HTTP status, Kubernetes' reason ("" on success) and seconds.
CallObserver = Callable[[int, str, float], None]

NAME_PREFIX: Final = "konnectivity-proxy-server-"
LEASE_SECONDS: Final = 30
RENEW_SECONDS: Final = 15.0
# Upstream's lease controller: +0..4 %, so that servers do not renew at the same time.
RENEW_JITTER: Final = 0.04
COLLECT_SECONDS: Final = 15.0
UPDATE_ATTEMPTS: Final = 5
CREATE_BACKOFF_SECONDS: Final = 0.2
CREATE_BACKOFF_CAP_SECONDS: Final = 7.0
# client-go's reflector: pause after a failed list, doubled each time, and duration of one watch.
LIST_BACKOFF_SECONDS: Final = 0.8
LIST_BACKOFF_CAP_SECONDS: Final = 30.0
WATCH_SECONDS: Final = 300
FALLBACK_COUNT: Final = 1


def _ignore_call(status: int, reason: str, seconds: float) -> None:
    """Observe nothing."""


def _ignore() -> None:
    """Observe nothing."""


@dataclass(frozen=True)
class Lease:
    """The fields of a lease that counting and collecting need."""

    name: str
    resource_version: str
    labels: Labels
    expires_at: datetime | None
    """None: neither renewed nor acquired, so it does not count."""
    address: tuple[str, int] | None = None
    """Where agents reach this server; None: not published."""

    def is_valid(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at > now


def parse_lease(content: Json) -> Lease:
    metadata, spec = content.get("metadata") or {}, content.get("spec") or {}
    held_since = _parse_time(spec.get("renewTime")) or _parse_time(spec.get("acquireTime"))
    duration = timedelta(seconds=int(spec.get("leaseDurationSeconds") or 0))
    return Lease(
        name=str(metadata.get("name", "")),
        resource_version=str(metadata.get("resourceVersion", "")),
        labels=metadata.get("labels") or {},
        expires_at=None if held_since is None else held_since + duration,
        address=parse_address((metadata.get("annotations") or {}).get(ANNOTATION)),
    )


def lease_name(server_id: str) -> str:
    return NAME_PREFIX + server_id


class LeasePublisher:
    """Renews this server's lease and deletes the expired leases of other servers."""

    def __init__(
        self,
        client: ApiClient,
        server_id: str,
        namespace: str,
        labels: Mapping[str, str],
        *,
        address: tuple[str, int] | None = None,
        owner: tuple[str, str] | None = None,
        collects: bool = True,
        on_list: CallObserver = _ignore_call,
        on_delete: CallObserver = _ignore_call,
        on_culled: Callable[[], None] = _ignore,
        clock: ClientClock | None = None,
    ) -> None:
        self._client = client
        self._server_id = server_id
        self._name = lease_name(server_id)
        self._namespace = namespace
        self._labels = dict(labels)
        self._address = address
        self._owner = owner
        self._collects = collects
        """Whether it deletes the expired leases of others: one of several in a process is enough."""
        self._on_list, self._on_delete, self._on_culled = on_list, on_delete, on_culled
        self._clock = clock or ClientClock()
        self._latest: Json | None = None
        self._renewed_at: float | None = None
        self._error = ""

    def describe(self) -> dict[str, object]:
        """For the server's status."""
        renewed = None if self._renewed_at is None else round(self._clock.monotonic() - self._renewed_at, 3)
        address = None if self._address is None else format_address(*self._address)
        names: dict[str, object] = {"server": self._server_id, "name": self._name, "address": address}
        return names | {"renewedAgoSeconds": renewed, "error": self._error or None}

    async def run(self) -> None:
        """Renew and collect until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._renew_forever(), name="renew the lease")
            if self._collects:
                tasks.create_task(self._collect_forever(), name="collect expired leases")

    async def withdraw(self) -> None:
        """Delete our lease, so that agents stop counting us at once. Call this after `run` has ended."""
        try:
            await self._client.request("DELETE", self._path(self._name))
        except ClusterError as error:
            if _status(error) != 404:
                log.warning("lease %s stays until it expires: %s", self._name, error.brief)
        self._latest = None

    async def renew(self) -> None:
        """Write the lease once: over our cached copy if there is one, else after getting or creating it."""
        if self._latest is not None and await self._update(self._latest):
            return
        lease, is_new = await self._get_or_create()
        self._latest = lease
        if not is_new:
            await self._update(lease)

    async def collect(self) -> None:
        """Delete every lease with our labels that has expired."""
        query = {"labelSelector": format_labels(self._labels)}
        try:
            answer = await self._observed(self._on_list, self._client.request("GET", self._path(), query=query))
        except ClusterError as error:
            log.warning("could not list expired leases: %s", error.brief)
            return
        now = self._clock.now()
        for lease in map(parse_lease, answer.get("items") or []):
            if not lease.is_valid(now):
                await self._delete_expired(lease)

    async def _renew_forever(self) -> None:
        while True:
            await self.renew()
            await self._clock.sleep(RENEW_SECONDS * (1 + RENEW_JITTER * self._clock.random()))

    async def _collect_forever(self) -> None:
        while True:
            await self.collect()
            await self._clock.sleep(COLLECT_SECONDS)

    async def _update(self, base: Json) -> bool:
        """PUT the lease; retry at once on failure, after a conflict with the current version."""
        for _ in range(UPDATE_ATTEMPTS):
            try:
                body = self._renewed(base)
                self._latest = await self._client.request("PUT", self._path(self._name), body=body)
                self._note_renewal()
                return True
            except ClusterError as error:
                self._error = error.brief
                log.info("lease %s: update failed: %s", self._name, error.brief)
                if _status(error) == 409:
                    base, _is_new = await self._get_or_create()
        log.warning("lease %s: not renewed in %d attempts", self._name, UPDATE_ATTEMPTS)
        return False

    async def _get_or_create(self) -> tuple[Json, bool]:
        """Return the lease and whether it was made just now; tries until it works."""
        pause = CREATE_BACKOFF_SECONDS
        while True:
            try:
                return await self._get_or_create_once()
            except ClusterError as error:
                self._error = error.brief
                log.warning("lease %s: could not create it, retry in %.1f s: %s", self._name, pause, error.brief)
            await self._clock.sleep(pause)
            pause = min(pause * 2, CREATE_BACKOFF_CAP_SECONDS)

    async def _get_or_create_once(self) -> tuple[Json, bool]:
        try:
            return await self._client.request("GET", self._path(self._name)), False
        except ApiRefused as error:
            if error.status != 404:
                raise
        created = await self._client.request("POST", self._path(), body=self._renewed({}))
        self._note_renewal()
        return created, True

    def _note_renewal(self) -> None:
        self._renewed_at, self._error = self._clock.monotonic(), ""

    def _renewed(self, base: Json) -> Json:
        """Return the lease with our fields and the current time; other fields stay."""
        metadata = base.get("metadata") or {}
        ours: Json = {"name": self._name, "namespace": self._namespace}
        spec = {
            **(base.get("spec") or {}),
            "holderIdentity": self._server_id,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": _format_time(self._clock.now()),
        }
        ours["labels"] = {**(metadata.get("labels") or {}), **self._labels}
        ours["annotations"] = self._annotated(metadata.get("annotations") or {})
        if self._owner is not None:
            name, uid = self._owner
            ours["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}]
        kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        return {**base, **kind, "metadata": {**metadata, **ours}, "spec": spec}

    def _annotated(self, annotations: Json) -> Json:
        """Set or remove our address annotation; an address from an earlier run must not stay."""
        others = {name: value for name, value in annotations.items() if name != ANNOTATION}
        return others if self._address is None else {**others, ANNOTATION: format_address(*self._address)}

    async def _delete_expired(self, lease: Lease) -> None:
        # The precondition protects a lease that was renewed after we listed it.
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"resourceVersion": lease.resource_version},
        }
        try:
            await self._observed(self._on_delete, self._client.request("DELETE", self._path(lease.name), body=options))
        except ClusterError as error:
            if _status(error) != 404:
                log.info("lease %s: expired, could not delete it: %s", lease.name, error.brief)
        else:
            log.info("lease %s: expired and deleted", lease.name)
            self._on_culled()

    async def _observed(self, observer: CallObserver, request: Awaitable[Json]) -> Json:
        return await _observed(observer, request, self._clock)

    def _path(self, name: str = "") -> str:
        return leases_path(self._namespace) + (f"/{name}" if name else "")


class LeaseCounter:
    """Counts the servers with valid leases; implements `ServerCounter` of `tunnel.interfaces`.

    It lists and watches every lease of the namespace and filters here, as upstream does: RBAC rules have no selectors.
    """

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        selector: Selector,
        *,
        on_list: CallObserver = _ignore_call,
        on_watch: CallObserver = _ignore_call,
        on_change: Callable[[], None] = _ignore,
        clock: ClientClock | None = None,
    ) -> None:
        self._client = client
        self._path = leases_path(namespace)
        self._selector = selector
        self._on_list, self._on_watch, self._on_change = on_list, on_watch, on_change
        self._clock = clock or ClientClock()
        self._leases: dict[str, Lease] = {}
        self._last_good = FALLBACK_COUNT
        self._list_attempted = False
        self._list_failed = False

    def server_count(self) -> int | None:
        """Return the count; None before the first list, the last known count while lists fail."""
        if not self._list_attempted:
            return None
        if self._list_failed:
            return self._last_good
        now = self._clock.now()
        valid = sum(lease.is_valid(now) for lease in self._leases.values())
        # Without valid leases the servers do not publish: count the one we are connected to.
        self._last_good = max(valid, FALLBACK_COUNT)
        return self._last_good

    def published_addresses(self) -> tuple[tuple[str, int], ...]:
        """Return the addresses that servers publish, sorted by lease name.

        Expired leases count until another server deletes them: while the API is unreachable all leases expire here, and
        it may be unreachable because no server is connected.
        """
        found = [lease.address for _, lease in sorted(self._leases.items()) if lease.address is not None]
        return tuple(dict.fromkeys(found))

    def published_ids(self) -> dict[tuple[str, int], set[str]]:
        """Return the IDs of the servers behind each address. Unlike an address, an ID counts only as long as its lease
        is valid: for a server that is gone an agent would search without end.
        """
        now = self._clock.now()
        found: dict[tuple[str, int], set[str]] = {}
        for lease in self._leases.values():
            if lease.address is not None and lease.is_valid(now):
                found.setdefault(lease.address, set()).add(lease.name.removeprefix(NAME_PREFIX))
        return found

    async def run(self) -> None:
        """List and watch until cancelled."""
        pause = LIST_BACKOFF_SECONDS
        while True:
            try:
                version = await self._list()
                pause = LIST_BACKOFF_SECONDS
                await self._watch_on(version)
            except ClusterError as error:
                log.warning("server leases: %s", error.brief)
            await self._clock.sleep(pause * (1 + self._clock.random()))
            pause = min(pause * 2, LIST_BACKOFF_CAP_SECONDS)

    async def _list(self) -> str:
        """List the leases; return the version from which to watch."""
        try:
            answer = await _observed(self._on_list, self._client.request("GET", self._path), self._clock)
        except ClusterError:
            self._list_attempted = self._list_failed = True
            raise
        self._leases = {}
        for content in answer.get("items") or []:
            self._keep(parse_lease(content))
        self._list_attempted, self._list_failed = True, False
        self.server_count()
        self._on_change()
        return str((answer.get("metadata") or {}).get("resourceVersion", ""))

    async def _watch_on(self, version: str) -> None:
        """Watch repeatedly from where the last watch ended; any error, e.g. "too old", leads to a new list."""
        while True:
            version = await self._watch_once(version)

    async def _watch_once(self, version: str) -> str:
        query = {
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            # Randomized between one and two times, as in client-go, so that agents do not reconnect together.
            "timeoutSeconds": str(int(WATCH_SECONDS * (1 + self._clock.random()))),
        }
        start = self._clock.monotonic()
        try:
            async with self._client.watch(self._path, query) as events:
                self._on_watch(200, "", self._clock.monotonic() - start)
                async for event in events:
                    version = self._apply(event) or version
        except ApiRefused as error:
            self._on_watch(error.status, error.reason, self._clock.monotonic() - start)
            raise
        return version

    def _apply(self, event: Json) -> str:
        lease = parse_lease(event["object"])
        was_counted = lease.name in self._leases
        match event.get("type"):
            case "ADDED" | "MODIFIED":
                self._keep(lease)
            case "DELETED":
                self._leases.pop(lease.name, None)
        self.server_count()
        # Other leases in the namespace, e.g. the scheduler's, change every two seconds: ignore them.
        if was_counted or lease.name in self._leases:
            self._on_change()
        return lease.resource_version

    def _keep(self, lease: Lease) -> None:
        if self._selector.matches(lease.labels):
            self._leases[lease.name] = lease
        else:
            self._leases.pop(lease.name, None)


def leases_path(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


async def _observed(observer: CallObserver, request: Awaitable[Json], clock: ClientClock) -> Json:
    """Report status and latency of one call; a call without an HTTP answer is not reported."""
    start = clock.monotonic()
    try:
        answer = await request
    except ApiRefused as error:
        observer(error.status, error.reason, clock.monotonic() - start)
        raise
    observer(200, "", clock.monotonic() - start)
    return answer


def _status(error: ClusterError) -> int | None:
    return error.status if isinstance(error, ApiRefused) else None


def _parse_time(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


def _format_time(moment: datetime) -> str:
    """Format a Kubernetes MicroTime: always six digits, always Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
