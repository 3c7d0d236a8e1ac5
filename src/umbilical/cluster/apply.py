"""Objects into a cluster: by server-side apply, where the API says what it changed; or, into one that is just being
born, created if absent, in order, until all are there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.objects import Discovery, Kind
from umbilical.fault import ApiRefused, ApiUnreachable, ClusterError

FIELD_MANAGER: Final = "umbilical"
# JSON is YAML too; the API takes patches of this kind under no other name.
_APPLY_PATCH: Final = "application/apply-patch+yaml"
# What changes though nobody asked for it: bookkeeping, and what controllers report.
_BOOKKEEPING: Final = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
_SECRET_VALUES: Final = ("data", "stringData")
# Shorter values are words like "true" that stand in any message.
_MIN_SECRET_CHARACTERS: Final = 6


class Change(Enum):
    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Document:
    """An object as a file has it."""

    api_version: str
    kind: str
    name: str
    namespace: str | None
    content: Json

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class KindUnknown(ClusterError):
    """The cluster serves no such kind: a CRD is missing, or a version."""

    def __init__(self, document: Document) -> None:
        super().__init__(
            "UMB568",
            f"{document} cannot be applied",
            f"this cluster does not serve {document.kind} of {document.api_version}",
            f"install what defines it (kubectl api-resources | grep {document.kind}), or leave the file out",
        )


def read_document(content: Any) -> Document | None:
    """Read an object; None if this is none."""
    if not isinstance(content, dict):
        return None
    meta = objects.metadata(content)
    version, kind, name = words = (content.get("apiVersion"), content.get("kind"), meta.get("name"))
    if not all(isinstance(word, str) and word for word in words):
        return None
    namespace = meta.get("namespace")
    return Document(str(version), str(kind), str(name), str(namespace) if namespace else None, content)


class Applier:
    """Applies objects to one cluster, and remembers which kinds it serves."""

    def __init__(self, client: ApiClient, *, dry_run: bool = False, force: bool = False) -> None:
        self._client = client
        self._query = {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"}
        if dry_run:
            self._query["dryRun"] = "All"
        self._discovery = Discovery(client)

    async def apply(self, document: Document) -> Change:
        """Make one object so.

        Raises:
            KindUnknown: the cluster serves no such kind.
            ApiRefused: 409 where another manager owns a field; no value of a Secret is in its message.
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
            return Change.CREATED
        return Change.UNCHANGED if _essence(before) == _essence(after) else Change.CHANGED

    async def _kind(self, document: Document) -> Kind:
        kind = await self._discovery.find(document.api_version, document.kind)
        if kind is None:
            raise KindUnknown(document)
        return kind


def _essence(item: Json) -> Json:
    """Strip what is not the user's: two of these are equal when nothing was changed."""
    kept = {key: value for key, value in item.items() if key not in ("status", "metadata")}
    meta = {key: value for key, value in objects.metadata(item).items() if key not in _BOOKKEEPING}
    return {**kept, "metadata": meta}


def without_secrets(refusal: ApiRefused, document: Document) -> ApiRefused:
    """Take the values of a Secret out of what the API says about it."""
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
# Whoever sent this has to change the manifest; waiting changes nothing. 422 is left out: a CRD's schema or an
# immutable field may be the cause, but so is an object that arrived before the defaults of its kind.
_HOPELESS: Final = frozenset({400, 405, 413, 415})
_INVALID: Final = 422
# As often as this the API may call an object invalid before it is believed.
_INVALID_ROUNDS: Final = 25


class Outcome(Enum):
    CREATED = "created"
    EXISTED = "existed"


@dataclass(frozen=True)
class Result:
    document: Document
    outcome: Outcome
    wrote_status: bool = False


class CreationError(ClusterError):
    """Some objects are not there; the first of them is named, with what the API said last."""


class _NotServed(ClusterError):
    def __init__(self, document: Document) -> None:
        why = "its condition Established is not True"
        super().__init__("UMB742", f"{document} serves nothing yet", why, f"kubectl describe crd {document.name}")


class Creator:
    """Creates the documents of one list, in its order; `told` hears of each that is done."""

    def __init__(self, client: ApiClient, told: Callable[[Result], None] = lambda result: None) -> None:
        self._client = client
        self._told = told
        self._discovery = Discovery(client)
        self._last: dict[int, ClusterError] = {}
        self._invalid: dict[int, int] = {}
        self._created: set[int] = set()

    async def create(
        self,
        documents: Sequence[Document],
        timeout_seconds: float,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> list[Result]:
        """Go round until all are there. Raises CreationError: UMB740 (too late), UMB741 (one will never be taken)."""
        done: dict[int, Result] = {}
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        while True:
            for index, document in enumerate(documents):
                if index not in done:
                    result = await self._try(index, document)
                    if result is not None:
                        done[index] = result
                        self._told(result)
            if len(done) == len(documents):
                return [done[index] for index in range(len(documents))]
            if asyncio.get_running_loop().time() >= deadline:
                raise self._too_late([index for index in range(len(documents)) if index not in done], documents)
            await sleep(ROUND_SECONDS)

    async def _try(self, index: int, document: Document) -> Result | None:
        try:
            kind = await self._discovery.find(document.api_version, document.kind)
            if kind is None:
                self._discovery.forget(document.api_version)
                self._last[index] = KindUnknown(document)
                return None
            return await self._bring(index, kind, document)
        except ApiRefused as refusal:
            told = without_secrets(refusal, document)
            self._last[index] = told
            self._check_hope(index, document, told)
        except (ApiUnreachable, _NotServed) as error:
            self._last[index] = error
        return None

    async def _bring(self, index: int, kind: Kind, document: Document) -> Result:
        live = await objects.get(self._client, kind, document.name, document.namespace)
        if live is None:
            path = kind.path(document.namespace)
            live = await self._client.request("POST", path, body=_without_status(document.content))
            self._created.add(index)
        if document.kind == CRD and not _is_established(live):
            # It is there and serves nothing yet: what follows would be turned away.
            live = await objects.get(self._client, kind, document.name, document.namespace) or live
            if not _is_established(live):
                raise _NotServed(document)
        wrote = await self._write_status(kind, document, live)
        return Result(document, Outcome.CREATED if index in self._created else Outcome.EXISTED, wrote)

    async def _write_status(self, kind: Kind, document: Document, live: Json) -> bool:
        wanted = document.content.get("status")
        if not wanted or document.kind == CRD or live.get("status"):
            return False
        body = {**live, "status": wanted}
        await self._client.request("PUT", f"{kind.path(document.namespace, document.name)}/status", body=body)
        return True

    def _check_hope(self, index: int, document: Document, refusal: ApiRefused) -> None:
        if refusal.status == _INVALID:
            self._invalid[index] = self._invalid.get(index, 0) + 1
        if refusal.status in _HOPELESS or self._invalid.get(index, 0) >= _INVALID_ROUNDS:
            remedy = f"correct the manifest of {document}, then run it again: what is there already stays"
            raise CreationError("UMB741", f"{document} will never be taken", refusal.message, remedy)

    def _too_late(self, missing: Sequence[int], documents: Sequence[Document]) -> CreationError:
        first = missing[0]
        said = self._last[first].why if first in self._last else "it was not tried"
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        remedy = "mend what the API complains of, then run it again: what is there already stays"
        return CreationError("UMB740", f"{documents[first]} is not there in time{more}", said, remedy)


def _without_status(content: Json) -> Json:
    return {key: value for key, value in content.items() if key != "status"}


def _is_established(live: Json) -> bool:
    conditions = objects.items(objects.field(live, "status", "conditions"))
    return any(one.get("type") == "Established" and one.get("status") == "True" for one in conditions)
