"""Write objects to a cluster: by server-side apply, reporting what changed; or, while a cluster starts, by creating
missing objects in order until all exist.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.objects import ApiKind, Discovery
from umbilical.fault import ApiRefused, ApiUnreachable, ClusterError

FIELD_MANAGER: Final = "umbilical"
# The only media type the API accepts for server-side apply; JSON is valid YAML.
_APPLY_PATCH: Final = "application/apply-patch+yaml"
# Fields that change without a change by the user.
_BOOKKEEPING: Final = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
_SECRET_VALUES: Final = ("data", "stringData")
# Shorter values are words like "true", which any message may contain.
_MIN_SECRET_CHARACTERS: Final = 6


class AppliedChange(Enum):
    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class ManifestDocument:
    """An object read from a manifest file."""

    api_version: str
    kind: str
    name: str
    namespace: str | None
    content: Json

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class KindUnknown(ClusterError):
    """The cluster does not serve the kind: a CRD or a version is missing."""

    def __init__(self, document: ManifestDocument) -> None:
        super().__init__(
            "UMB568",
            f"could not apply {document}",
            f"this cluster does not serve {document.kind} of {document.api_version}",
            f"install its CRD (check: kubectl api-resources | grep {document.kind}), or leave the file out",
        )


def read_document(content: Any) -> ManifestDocument | None:
    """Read an object; None if `content` is not a Kubernetes object."""
    if not isinstance(content, dict):
        return None
    meta = objects.metadata(content)
    version, kind, name = words = (content.get("apiVersion"), content.get("kind"), meta.get("name"))
    if not all(isinstance(word, str) and word for word in words):
        return None
    namespace = meta.get("namespace")
    return ManifestDocument(str(version), str(kind), str(name), str(namespace) if namespace else None, content)


class Applier:
    """Applies objects to one cluster, and caches which kinds it serves."""

    def __init__(self, client: ApiClient, *, dry_run: bool = False, force: bool = False) -> None:
        self._client = client
        self._query = {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"}
        if dry_run:
            self._query["dryRun"] = "All"
        self._discovery = Discovery(client)

    async def apply(self, document: ManifestDocument) -> AppliedChange:
        """Apply one object.

        Raises:
            KindUnknown: the cluster does not serve the kind.
            ApiRefused: e.g. 409 if another field manager owns a field; its message holds no value of a Secret.
            ApiUnreachable: no answer.
        """
        kind = await self._kind(document)
        path = kind.path(document.namespace, document.name)
        before = await objects.get(self._client, kind, document.name, document.namespace)
        try:
            after = await self._client.request(
                "PATCH", path, query=self._query, body=document.content, content_type=_APPLY_PATCH
            )
        except ApiRefused as refusal:
            raise without_secrets(refusal, document) from None
        if before is None:
            return AppliedChange.CREATED
        return AppliedChange.UNCHANGED if _essence(before) == _essence(after) else AppliedChange.CHANGED

    async def _kind(self, document: ManifestDocument) -> ApiKind:
        kind = await self._discovery.find(document.api_version, document.kind)
        if kind is None:
            raise KindUnknown(document)
        return kind


def _essence(item: Json) -> Json:
    """Return only the fields that a user sets, to detect changes."""
    kept = {key: value for key, value in item.items() if key not in ("status", "metadata")}
    meta = {key: value for key, value in objects.metadata(item).items() if key not in _BOOKKEEPING}
    return {**kept, "metadata": meta}


def without_secrets(refusal: ApiRefused, document: ManifestDocument) -> ApiRefused:
    """Remove the values of a Secret from the API's message."""
    if document.kind != "Secret":
        return refusal
    message = refusal.message
    for value in _secret_values(document.content):
        message = message.replace(value, "(hidden)")
    return ApiRefused(f"PATCH {document}", refusal.status, refusal.reason, message)


def _secret_values(content: Json) -> Iterator[str]:
    for member in _SECRET_VALUES:
        values = content.get(member)
        for value in values.values() if isinstance(values, dict) else ():
            if isinstance(value, str) and len(value) >= _MIN_SECRET_CHARACTERS:
                yield value


ROUND_SECONDS: Final = 0.2
CRD: Final = "CustomResourceDefinition"
# A retry cannot help: the manifest is wrong. 422 is not among them: it may also mean that an object came before the
# defaults of its kind.
_PERMANENT: Final = frozenset({400, 405, 413, 415})
_INVALID: Final = 422
# 422 is treated as permanent after this many attempts.
_INVALID_ROUNDS: Final = 25


class CreateOutcome(Enum):
    CREATED = "created"
    EXISTED = "existed"


@dataclass(frozen=True)
class CreateResult:
    document: ManifestDocument
    outcome: CreateOutcome
    wrote_status: bool = False


class CreationError(ClusterError):
    """Objects were not created; names the first, with the API's last message."""


class _NotServed(ClusterError):
    def __init__(self, document: ManifestDocument) -> None:
        why = "its condition Established is not True"
        super().__init__("UMB742", f"{document} is not served yet", why, f"kubectl describe crd {document.name}")


class Creator:
    """Creates the documents of one list, in order; calls `on_done` with each result."""

    def __init__(self, client: ApiClient, on_done: Callable[[CreateResult], None] = lambda result: None) -> None:
        self._client = client
        self._on_done = on_done
        self._discovery = Discovery(client)
        self._last: dict[int, ClusterError] = {}
        self._invalid: dict[int, int] = {}
        self._created: set[int] = set()

    async def create(
        self,
        documents: Sequence[ManifestDocument],
        timeout_seconds: float,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> list[CreateResult]:
        """Retry until all exist. Raises CreationError: UMB740 (timeout), UMB741 (the API rejects one permanently)."""
        done: dict[int, CreateResult] = {}
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        while True:
            for index, document in enumerate(documents):
                if index not in done:
                    result = await self._try(index, document)
                    if result is not None:
                        done[index] = result
                        self._on_done(result)
            if len(done) == len(documents):
                return [done[index] for index in range(len(documents))]
            if asyncio.get_running_loop().time() >= deadline:
                raise self._too_late([index for index in range(len(documents)) if index not in done], documents)
            await sleep(ROUND_SECONDS)

    async def _try(self, index: int, document: ManifestDocument) -> CreateResult | None:
        try:
            kind = await self._discovery.find(document.api_version, document.kind)
            if kind is None:
                self._discovery.forget(document.api_version)
                self._last[index] = KindUnknown(document)
                return None
            return await self._create(index, kind, document)
        except ApiRefused as refusal:
            cleaned = without_secrets(refusal, document)
            self._last[index] = cleaned
            self._check_permanent(index, document, cleaned)
        except (ApiUnreachable, _NotServed) as error:
            self._last[index] = error
        return None

    async def _create(self, index: int, kind: ApiKind, document: ManifestDocument) -> CreateResult:
        live = await objects.get(self._client, kind, document.name, document.namespace)
        if live is None:
            path = kind.path(document.namespace)
            live = await self._client.request("POST", path, body=_without_status(document.content))
            self._created.add(index)
        if document.kind == CRD and not _is_established(live):
            # Until a CRD is Established, the API refuses objects of its kind.
            live = await objects.get(self._client, kind, document.name, document.namespace) or live
            if not _is_established(live):
                raise _NotServed(document)
        wrote = await self._write_status(kind, document, live)
        return CreateResult(document, CreateOutcome.CREATED if index in self._created else CreateOutcome.EXISTED, wrote)

    async def _write_status(self, kind: ApiKind, document: ManifestDocument, live: Json) -> bool:
        wanted = document.content.get("status")
        if not wanted or document.kind == CRD or live.get("status"):
            return False
        body = {**live, "status": wanted}
        await self._client.request("PUT", f"{kind.path(document.namespace, document.name)}/status", body=body)
        return True

    def _check_permanent(self, index: int, document: ManifestDocument, refusal: ApiRefused) -> None:
        if refusal.status == _INVALID:
            self._invalid[index] = self._invalid.get(index, 0) + 1
        if refusal.status in _PERMANENT or self._invalid.get(index, 0) >= _INVALID_ROUNDS:
            remedy = f"correct the manifest of {document} and run the command again; existing objects stay"
            raise CreationError("UMB741", f"the API rejected {document}", refusal.message, remedy)

    def _too_late(self, missing: Sequence[int], documents: Sequence[ManifestDocument]) -> CreationError:
        first = missing[0]
        why = self._last[first].why if first in self._last else "it was not tried"
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        remedy = "fix what the API reports and run the command again; existing objects stay"
        return CreationError("UMB740", f"timed out creating {documents[first]}{more}", why, remedy)


def _without_status(content: Json) -> Json:
    return {key: value for key, value in content.items() if key != "status"}


def _is_established(live: Json) -> bool:
    conditions = objects.items(objects.field(live, "status", "conditions"))
    return any(one.get("type") == "Established" and one.get("status") == "True" for one in conditions)
