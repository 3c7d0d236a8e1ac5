"""Clients of the API: users and groups of certificates, their cluster roles, and kubeconfigs as clients read them."""

import base64
import binascii
import urllib.parse
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from umbilical.hardway.lint.applied import dig, entries, mapping, text
from umbilical.hardway.lint.facts import LintFacts, Unreadable
from umbilical.pki.certificate import Certificate
from umbilical.pki.pem import KeyPair

MASTERS: Final = "system:masters"
"""The group to which kube-apiserver allows everything, independent of roles."""
_EVERYTHING: Final = "cluster-admin"
_BUILT_IN: Final = {"system:kubelet-api-admin": ("nodes/proxy",)}


@dataclass(frozen=True)
class ClientIdentity:
    user: str
    groups: frozenset[str]

    @property
    def is_cluster_admin(self) -> bool:
        return MASTERS in self.groups


def identity(certificate: Certificate) -> ClientIdentity:
    """Return user and groups of a client certificate, as kube-apiserver reads them."""
    return ClientIdentity(
        certificate.common_name, frozenset(value for kind, value in certificate.subject if kind == "O")
    )


def roles_of(facts: LintFacts, who: ClientIdentity) -> set[str]:
    """List the cluster roles that manifests bind a client to."""
    return {
        text(one, "roleRef", "name")
        for _, one in facts.manifests
        if one.get("kind") == "ClusterRoleBinding" and any(_is(subject, who) for subject in entries(one, "subjects"))
    }


def may_use(facts: LintFacts, who: ClientIdentity, resource: str, verbs: Collection[str]) -> bool:
    """Tell whether a client may use all these verbs on a resource of the core group, in all namespaces."""
    roles = roles_of(facts, who)
    if who.is_cluster_admin or _EVERYTHING in roles:
        return True
    if any(resource in _BUILT_IN.get(role, ()) for role in roles):
        return True
    return any(_allows(rule, resource, verbs) for rule in _rules(facts, roles))


def _is(subject: Any, who: ClientIdentity) -> bool:
    name = text(subject, "name")
    match dig(subject, "kind"):
        case "User":
            return name == who.user
        case "Group":
            return name in who.groups
        case "ServiceAccount":
            return who.user == f"system:serviceaccount:{text(subject, 'namespace')}:{name}"
    return False


def _rules(facts: LintFacts, roles: Collection[str]) -> Iterator[Any]:
    for _, one in facts.manifests:
        if one.get("kind") == "ClusterRole" and text(one, "metadata", "name") in roles:
            yield from entries(one, "rules")


def _allows(rule: Any, resource: str, verbs: Collection[str]) -> bool:
    groups, resources, granted = (set(map(str, entries(rule, key))) for key in ("apiGroups", "resources", "verbs"))
    return (
        bool({"", "*"} & groups)
        and bool({resource, "*", f"{resource.partition('/')[0]}/*"} & resources)
        and ("*" in granted or granted >= set(verbs))
    )


@dataclass(frozen=True)
class ResolvedKubeconfig:
    """The current context of a kubeconfig."""

    path: str
    user: str
    host: str
    port: int | None
    authority: bytes
    pair: KeyPair


def read(facts: LintFacts, path: str) -> ResolvedKubeconfig:
    """Resolve the kubeconfig at this path."""
    return resolve(facts.document(path), path)


def resolve(document: Any, path: str) -> ResolvedKubeconfig:
    """Resolve the current context of a kubeconfig, as kubectl does; `path` is for error messages.

    Raises Unreadable: an entry is missing.
    """
    name = text(document, "current-context")
    context = mapping(_named(path, document, "contexts", name), "context")
    cluster = mapping(_named(path, document, "clusters", text(context, "cluster")), "cluster")
    user = mapping(_named(path, document, "users", text(context, "user")), "user")
    if name != context.get("user"):
        raise Unreadable(f"{path}: context {name} and its user {context.get('user')} have different names")
    host, port = _server(path, cluster.get("server"))
    pair = KeyPair(_decoded(path, user, "client-certificate-data"), _decoded(path, user, "client-key-data"))
    return ResolvedKubeconfig(path, name, host, port, _decoded(path, cluster, "certificate-authority-data"), pair)


def _named(path: str, document: Any, kind: str, name: str) -> Any:
    found = [one for one in entries(document, kind) if text(one, "name") == name]
    if not name or not found:
        raise Unreadable(f"{path} refers to {name!r}, but {kind} has no such entry")
    return found[0]


def _server(path: str, server: object) -> tuple[str, int | None]:
    try:
        url = urllib.parse.urlsplit(str(server))
        if url.scheme == "https" and url.hostname:
            return url.hostname, url.port
    except ValueError:
        pass
    raise Unreadable(f"{path} has the server {server!r}, which is not an https URL")


def _decoded(path: str, entry: dict[str, Any], key: str) -> bytes:
    try:
        return base64.b64decode(str(entry.get(key) or ""), validate=True)
    except binascii.Error:
        raise Unreadable(f"{path}: {key} is not base64") from None
