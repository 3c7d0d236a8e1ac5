"""Kubeconfigs as clients read them: the current context, resolved."""

import base64
import binascii
import urllib.parse
from dataclasses import dataclass
from typing import Any

from umbilical.hardway.lint.applied import entries, mapping, text
from umbilical.hardway.lint.facts import Facts, Unreadable
from umbilical.pki.pem import KeyPair


@dataclass(frozen=True)
class Reading:
    """A kubeconfig, as a client reads it."""

    path: str
    user: str
    host: str
    port: int | None
    authority: bytes
    pair: KeyPair


def read(facts: Facts, path: str) -> Reading:
    """Read an artifact as `resolve` does."""
    return resolve(facts.document(path), path)


def resolve(document: Any, path: str) -> Reading:
    """Resolve the current context of a kubeconfig, as kubectl does; `path` is for what is said about it.

    Raises:
        Unreadable: something is missing, or is named and not there.
    """
    name = text(document, "current-context")
    context = mapping(_named(path, document, "contexts", name), "context")
    cluster = mapping(_named(path, document, "clusters", text(context, "cluster")), "cluster")
    user = mapping(_named(path, document, "users", text(context, "user")), "user")
    if name != context.get("user"):
        raise Unreadable(f"{path}: the context {name} is not called like its user {context.get('user')}")
    host, port = _server(path, cluster.get("server"))
    pair = KeyPair(_decoded(path, user, "client-certificate-data"), _decoded(path, user, "client-key-data"))
    return Reading(path, name, host, port, _decoded(path, cluster, "certificate-authority-data"), pair)


def _named(path: str, document: Any, kind: str, name: str) -> Any:
    found = [one for one in entries(document, kind) if text(one, "name") == name]
    if not name or not found:
        raise Unreadable(f"{path} names {name!r}, and has no such entry in {kind}")
    return found[0]


def _server(path: str, server: object) -> tuple[str, int | None]:
    try:
        url = urllib.parse.urlsplit(str(server))
        if url.scheme == "https" and url.hostname:
            return url.hostname, url.port
    except ValueError:
        pass
    raise Unreadable(f"{path} has the server {server!r}, which is no https URL")


def _decoded(path: str, entry: dict[str, Any], key: str) -> bytes:
    try:
        return base64.b64decode(str(entry.get(key) or ""), validate=True)
    except binascii.Error:
        raise Unreadable(f"{path}: {key} is not base64") from None
