"""Who is allowed what by the cluster's own manifests: bindings of cluster roles, built-in ones included."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from umbilical.assets.hardway.lint.facts import Facts
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
        one.get("roleRef", {}).get("name", "")
        for _, one in facts.manifests
        if one.get("kind") == "ClusterRoleBinding" and any(_is(subject, who) for subject in one.get("subjects") or ())
    }


def may_use(facts: Facts, who: Identity, resource: str, verbs: Collection[str]) -> bool:
    """Tell whether somebody may do all these things with a resource of the core group, anywhere."""
    roles = roles_of(facts, who)
    if who.is_almighty or _EVERYTHING in roles:
        return True
    if any(resource in _BUILT_IN.get(role, ()) for role in roles):
        return True
    return any(_allows(rule, resource, verbs) for rule in _rules(facts, roles))


def _is(subject: dict[str, Any], who: Identity) -> bool:
    name = subject.get("name")
    match subject.get("kind"):
        case "User":
            return bool(name == who.user)
        case "Group":
            return name in who.groups
        case "ServiceAccount":
            return who.user == f"system:serviceaccount:{subject.get('namespace')}:{name}"
    return False


def _rules(facts: Facts, roles: Collection[str]) -> Iterator[dict[str, Any]]:
    for _, one in facts.manifests:
        if one.get("kind") == "ClusterRole" and one.get("metadata", {}).get("name") in roles:
            yield from one.get("rules") or ()


def _allows(rule: dict[str, Any], resource: str, verbs: Collection[str]) -> bool:
    granted = set(rule.get("verbs") or ())
    return (
        bool({"", "*"} & set(rule.get("apiGroups") or ()))
        and bool({resource, "*", f"{resource.partition('/')[0]}/*"} & set(rule.get("resources") or ()))
        and ("*" in granted or granted >= set(verbs))
    )
