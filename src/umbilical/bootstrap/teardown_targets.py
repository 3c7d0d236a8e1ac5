"""Finds the tunnel's objects in a cluster, by label, or by name for the seed shape; and what keeps a deleted object:
finalizers, a namespace's conditions, pods of agents."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from umbilical.bootstrap.names import AGENT_NAME, AGENT_SECRET, BOOTSTRAP_ONLY
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.objects import DAEMON_SET, NAMESPACE, POD, SECRET, ApiKind
from umbilical.fault import ApiRefused

# Order of deletion: agents before the key they use, the namespace last.
ORDER: Final = (DAEMON_SET, SECRET, NAMESPACE)
# Kubernetes' own namespaces: never deleted, even with our label.
SYSTEM_NAMESPACES: Final = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})
LABEL: Final = "=".join(BOOTSTRAP_ONLY)


class TeardownScope(Enum):
    OPENSHIFT = "openshift"
    SEED = "seed"
    AUTO = "auto"
    """Both namespaces, only objects with the label."""


@dataclass(frozen=True)
class TeardownTarget:
    """One object, identified by its uid: a later object of the same name is another one."""

    kind: ApiKind
    name: str
    namespace: str | None
    uid: str
    is_going: bool
    """Its deletion was already requested."""

    def __str__(self) -> str:
        return f"{self.kind.name} {self.namespace}/{self.name}" if self.namespace else f"{self.kind.name} {self.name}"


@dataclass
class FoundTargets:
    targets: list[TeardownTarget] = field(default_factory=list)
    kept: list[TeardownTarget] = field(default_factory=list)
    """Objects with a name of ours but without our label."""
    refusals: list[ApiRefused] = field(default_factory=list)


async def find_targets(client: ApiClient, choice: TeardownScope, namespace: str | None = None) -> FoundTargets:
    """Find the tunnel's objects; changes nothing. Raises ApiUnreachable: the API does not answer."""
    found = FoundTargets()
    for place in _places(choice, namespace):
        for kind, name in ((DAEMON_SET, AGENT_NAME), (SECRET, AGENT_SECRET)):
            await _find(client, found, kind, name, place, needs_label=choice is not TeardownScope.SEED)
        if place not in SYSTEM_NAMESPACES:
            await _find(client, found, NAMESPACE, place, None, needs_label=True)
    found.targets.sort(key=lambda target: ORDER.index(target.kind))
    return found


def _places(choice: TeardownScope, namespace: str | None) -> list[str]:
    if namespace is not None:
        return [namespace]
    shapes = [Shape.OPENSHIFT, Shape.SEED] if choice is TeardownScope.AUTO else [Shape(choice.value)]
    return [for_shape(shape).namespace for shape in shapes]


async def _find(
    client: ApiClient, found: FoundTargets, kind: ApiKind, name: str, namespace: str | None, *, needs_label: bool
) -> None:
    try:
        item = await objects.get_metadata(client, kind, name, namespace)
    except ApiRefused as refusal:
        found.refusals.append(refusal)
        return
    if item is None:
        return
    target = _target(kind, name, namespace, item)
    if needs_label and not _carries_label(item):
        found.kept.append(target)
    else:
        found.targets.append(target)


def _target(kind: ApiKind, name: str, namespace: str | None, item: Json) -> TeardownTarget:
    seen = objects.metadata(item)
    return TeardownTarget(kind, name, namespace, str(seen.get("uid")), is_going=bool(seen.get("deletionTimestamp")))


def _carries_label(item: Json) -> bool:
    name, value = BOOTSTRAP_ONLY
    return bool(objects.field(item, "metadata", "labels", name) == value)


# Conditions of the namespace controller, most helpful first; each with a hint.
CONDITIONS: Final = {
    "NamespaceDeletionDiscoveryFailure": "an aggregated API does not answer: kubectl get apiservices",
    "NamespaceDeletionGroupVersionParsingFailure": "kubectl get apiservices",
    "NamespaceDeletionContentFailure": "some objects cannot be listed or deleted: is a conversion webhook unreachable?",
    "NamespaceFinalizersRemaining": "the owner of the finalizer must remove it",
    "NamespaceContentRemaining": "",
}


async def leftovers(client: ApiClient, targets: Iterable[TeardownTarget]) -> dict[str, str]:
    """Return the remaining objects by name, each with the cause. Raises ApiUnreachable: the API does not answer."""
    remaining: dict[str, str] = {}
    for target in targets:
        held_by = await _held_by(client, target)
        if held_by is not None:
            remaining[str(target)] = held_by
        if target.kind is DAEMON_SET:
            remaining |= await _pods(client, target)
    return remaining


def why_terminating(namespace: Json) -> str:
    """Return what keeps a namespace in Terminating, from its conditions and finalizers."""
    conditions = {
        str(item.get("type")): str(item.get("message"))
        for item in objects.items(objects.field(namespace, "status", "conditions"))
        if item.get("status") == "True"
    }
    causes = [_condition(name, conditions[name], hint) for name, hint in CONDITIONS.items() if name in conditions]
    finalizers = _strings(objects.metadata(namespace).get("finalizers"))
    if finalizers:
        causes.append(f"metadata.finalizers: {', '.join(finalizers)}")
    if not causes:
        waiting = ", ".join(_strings(objects.field(namespace, "spec", "finalizers"))) or "none"
        causes.append(f"spec.finalizers: {waiting}; kube-controller-manager has not reported a condition yet")
    return "; ".join(causes)


def _condition(name: str, message: str, hint: str) -> str:
    return f"{name}: {message}" + (f" ({hint})" if hint else "")


def _finalizers(item: Json) -> str:
    names = _strings(objects.metadata(item).get("finalizers"))
    return f"metadata.finalizers: {', '.join(names)}" if names else "being deleted"


async def _held_by(client: ApiClient, target: TeardownTarget) -> str | None:
    """Return what keeps this object; None if it is gone, even if another one has its name by now."""
    # A namespace's conditions are outside the metadata. Of a Secret only the metadata is read.
    fetch = objects.get if target.kind is NAMESPACE else objects.get_metadata
    try:
        item = await fetch(client, target.kind, target.name, target.namespace)
    except ApiRefused as refusal:
        return f"could not be read: {refusal.message}"
    if item is None or objects.metadata(item).get("uid") != target.uid:
        return None
    return why_terminating(item) if target.kind is NAMESPACE else _finalizers(item)


async def _pods(client: ApiClient, target: TeardownTarget) -> dict[str, str]:
    """Find agents that outlive their DaemonSet: the garbage collector deletes them in the background."""
    try:
        pods = await objects.list_metadata(client, POD, target.namespace, f"app={AGENT_NAME}")
    except ApiRefused:
        return {}  # no permission to list pods: only the DaemonSet is watched
    owned = [objects.metadata(pod) for pod in pods if _is_owned(pod, target.uid)]
    return {f"Pod {target.namespace}/{pod.get('name')}": "ending" for pod in owned}


def _is_owned(pod: Json, uid: str) -> bool:
    owners = objects.items(objects.metadata(pod).get("ownerReferences"))
    return any(owner.get("uid") == uid for owner in owners)


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
