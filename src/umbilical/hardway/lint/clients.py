"""Who a client is and what it may do: kubeconfigs as clients read them, and bindings of cluster roles."""

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
"""The group that kube-apiserver lets do everything, whatever roles say."""
_EVERYTHING: Final = "cluster-admin"
_BUILT_IN: Final = {"system:kubelet-api-admin": ("nodes/proxy",)}


@dataclass(frozen=True)
class ClientIdentity:
    user: str
    groups: frozenset[str]

    @property
    def is_almighty(self) -> bool:
        return MASTERS in self.groups


def identity(certificate: Certificate) -> ClientIdentity:
    """Read a client certificate as kube-apiserver does."""
    return ClientIdentity(
        certificate.common_name, frozenset(value for kind, value in certificate.subject if kind == "O")
    )


def roles_of(facts: LintFacts, who: ClientIdentity) -> set[str]:
    """List the cluster roles that manifests bind somebody to."""
    return {
        text(one, "roleRef", "name")
        for _, one in facts.manifests
        if one.get("kind") == "ClusterRoleBinding" and any(_is(subject, who) for subject in entries(one, "subjects"))
    }


def may_use(facts: LintFacts, who: ClientIdentity, resource: str, verbs: Collection[str]) -> bool:
    """Tell whether somebody may do all these things with a resource of the core group, anywhere."""
    roles = roles_of(facts, who)
    if who.is_almighty or _EVERYTHING in roles:
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
    """A kubeconfig, as a client reads it."""

    path: str
    user: str
    host: str
    port: int | None
    authority: bytes
    pair: KeyPair


def read(facts: LintFacts, path: str) -> ResolvedKubeconfig:
    """Read an artifact as `resolve` does."""
    return resolve(facts.document(path), path)


def resolve(document: Any, path: str) -> ResolvedKubeconfig:
    """Resolve the current context of a kubeconfig, as kubectl does; `path` is for what is said about it.

    Raises Unreadable: something is missing, or is named and not there.
    """
    name = text(document, "current-context")
    context = mapping(_named(path, document, "contexts", name), "context")
    cluster = mapping(_named(path, document, "clusters", text(context, "cluster")), "cluster")
    user = mapping(_named(path, document, "users", text(context, "user")), "user")
    if name != context.get("user"):
        raise Unreadable(f"{path}: the context {name} is not called like its user {context.get('user')}")
    host, port = _server(path, cluster.get("server"))
    pair = KeyPair(_decoded(path, user, "client-certificate-data"), _decoded(path, user, "client-key-data"))
    return ResolvedKubeconfig(path, name, host, port, _decoded(path, cluster, "certificate-authority-data"), pair)


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
