"""Who is allowed what by the cluster's own manifests: bindings of cluster roles, built-in ones included."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from umbilical.hardway.lint.applied import dig, entries, text
from umbilical.hardway.lint.facts import Facts
from umbilical.pki.certificate import Certificate

MASTERS: Final = "system:masters"
"""The group that kube-apiserver lets do everything, whatever roles say."""
_EVERYTHING: Final = "cluster-admin"
_BUILT_IN: Final = {"system:kubelet-api-admin": ("nodes/proxy",)}


@dataclass(frozen=True)
class Identity:
    user: str
    groups: frozenset[str]

    @property
    def is_almighty(self) -> bool:
        return MASTERS in self.groups


def identity(certificate: Certificate) -> Identity:
    """Read a client certificate as kube-apiserver does."""
    return Identity(certificate.common_name, frozenset(value for kind, value in certificate.subject if kind == "O"))


def roles_of(facts: Facts, who: Identity) -> set[str]:
    """List the cluster roles that manifests bind somebody to."""
    return {
        text(one, "roleRef", "name")
        for _, one in facts.manifests
        if one.get("kind") == "ClusterRoleBinding" and any(_is(subject, who) for subject in entries(one, "subjects"))
    }


def may_use(facts: Facts, who: Identity, resource: str, verbs: Collection[str]) -> bool:
    """Tell whether somebody may do all these things with a resource of the core group, anywhere."""
    roles = roles_of(facts, who)
    if who.is_almighty or _EVERYTHING in roles:
        return True
    if any(resource in _BUILT_IN.get(role, ()) for role in roles):
        return True
    return any(_allows(rule, resource, verbs) for rule in _rules(facts, roles))


def _is(subject: Any, who: Identity) -> bool:
    name = text(subject, "name")
    match dig(subject, "kind"):
        case "User":
            return name == who.user
        case "Group":
            return name in who.groups
        case "ServiceAccount":
            return who.user == f"system:serviceaccount:{text(subject, 'namespace')}:{name}"
    return False


def _rules(facts: Facts, roles: Collection[str]) -> Iterator[Any]:
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
