"""What of a deleted object is still there, and what holds it: finalizers, a namespace's conditions, pods of agents."""

from collections.abc import Iterable
from typing import Final

from umbilical.bootstrap.names import AGENT_NAME
from umbilical.bootstrap.teardown_targets import Target
from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.objects import DAEMON_SET, NAMESPACE, POD
from umbilical.fault import ApiRefused

# What the namespace controller writes down, in the order in which it helps; each with what to look at.
CONDITIONS: Final = {
    "NamespaceDeletionDiscoveryFailure": "an aggregated API does not answer: kubectl get apiservices",
    "NamespaceDeletionGroupVersionParsingFailure": "kubectl get apiservices",
    "NamespaceDeletionContentFailure": "some objects cannot be listed or deleted: a conversion webhook out of reach?",
    "NamespaceFinalizersRemaining": "whoever set the finalizer must take it away",
    "NamespaceContentRemaining": "",
}


async def leftovers(client: ApiClient, targets: Iterable[Target]) -> dict[str, str]:
    """Return what is still there by its name, with what holds it.

    Raises:
        ApiUnreachable: the API does not answer.
    """
    remaining: dict[str, str] = {}
    for target in targets:
        held_by = await _held_by(client, target)
        if held_by is not None:
            remaining[str(target)] = held_by
        if target.kind is DAEMON_SET:
            remaining |= await _pods(client, target)
    return remaining


def why_terminating(namespace: Json) -> str:
    """Say what keeps a namespace in Terminating, from its conditions and finalizers."""
    conditions = {
        str(item.get("type")): str(item.get("message"))
        for item in objects.items(objects.field(namespace, "status", "conditions"))
        if item.get("status") == "True"
    }
    told = [_condition(name, conditions[name], hint) for name, hint in CONDITIONS.items() if name in conditions]
    finalizers = _strings(objects.metadata(namespace).get("finalizers"))
    if finalizers:
        told.append(f"metadata.finalizers: {', '.join(finalizers)}")
    if not told:
        waiting = ", ".join(_strings(objects.field(namespace, "spec", "finalizers"))) or "nobody"
        told.append(f"spec.finalizers: {waiting}; kube-controller-manager has not told why")
    return "; ".join(told)


def _condition(name: str, message: str, hint: str) -> str:
    return f"{name}: {message}" + (f" ({hint})" if hint else "")


def _finalizers(item: Json) -> str:
    names = _strings(objects.metadata(item).get("finalizers"))
    return f"metadata.finalizers: {', '.join(names)}" if names else "being deleted"


async def _held_by(client: ApiClient, target: Target) -> str | None:
    """Say what holds this very object; None when it is gone, even if another one has its name by now."""
    # Conditions lie outside the metadata, which is all that is asked for of a Secret.
    fetch = objects.get if target.kind is NAMESPACE else objects.get_metadata
    try:
        item = await fetch(client, target.kind, target.name, target.namespace)
    except ApiRefused as refusal:
        return f"cannot be looked at: {refusal.message}"
    if item is None or objects.metadata(item).get("uid") != target.uid:
        return None
    return why_terminating(item) if target.kind is NAMESPACE else _finalizers(item)


async def _pods(client: ApiClient, target: Target) -> dict[str, str]:
    """Find agents that outlive their DaemonSet for a moment: the garbage collector ends them in the background."""
    try:
        pods = await objects.list_metadata(client, POD, target.namespace, f"app={AGENT_NAME}")
    except ApiRefused:
        return {}  # no right to see pods: the DaemonSet alone is followed
    owned = [objects.metadata(pod) for pod in pods if _is_owned(pod, target.uid)]
    return {f"Pod {target.namespace}/{pod.get('name')}": "ending" for pod in owned}


def _is_owned(pod: Json, uid: str) -> bool:
    owners = objects.items(objects.metadata(pod).get("ownerReferences"))
    return any(owner.get("uid") == uid for owner in owners)


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
