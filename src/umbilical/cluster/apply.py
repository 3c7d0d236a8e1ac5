"""Server-side apply: an object is sent as it shall be, and the API says what that changed.

Kinds are found by the API's own discovery, so that Routes and ServiceMonitors need no table here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.discovery import Discovery
from umbilical.cluster.objects import Kind
from umbilical.fault import ApiRefused, ClusterError

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
