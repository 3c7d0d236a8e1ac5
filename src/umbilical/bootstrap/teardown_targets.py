"""What of a cluster is the tunnel's: by label, or by the names of the first plan when that is asked for.

A DaemonSet `konnectivity-agent` in kube-system may as well be somebody's production tunnel: without our label it is
touched only when the seed shape was named.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from umbilical.bootstrap.names import AGENT_NAME, AGENT_SECRET, BOOTSTRAP_ONLY
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.objects import DAEMON_SET, NAMESPACE, SECRET, Kind
from umbilical.fault import ApiRefused

# The order of deletion: agents before the key they use, and the namespace when nothing of value is left in it.
ORDER: Final = (DAEMON_SET, SECRET, NAMESPACE)
# Kubernetes' own. Whoever put our label on one of them did not mean this.
SYSTEM_NAMESPACES: Final = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})
LABEL: Final = "=".join(BOOTSTRAP_ONLY)


class Choice(Enum):
    OPENSHIFT = "openshift"
    SEED = "seed"
    AUTO = "auto"
    """Both places, and only what carries the label."""


@dataclass(frozen=True)
class Target:
    """One object, as it was seen: another one of the same name later on is not it."""

    kind: Kind
    name: str
    namespace: str | None
    uid: str
    is_going: bool
    """Its deletion was asked for already."""

    def __str__(self) -> str:
        return f"{self.kind.name} {self.namespace}/{self.name}" if self.namespace else f"{self.kind.name} {self.name}"


@dataclass
class Found:
    targets: list[Target] = field(default_factory=list)
    kept: list[Target] = field(default_factory=list)
    """What bears a name of ours and not our label."""
    refusals: list[ApiRefused] = field(default_factory=list)


async def find_targets(client: ApiClient, choice: Choice, namespace: str | None = None) -> Found:
    """Look for the tunnel's objects; nothing is changed.

    Raises:
        ApiUnreachable: the API does not answer.
    """
    found = Found()
    for place in _places(choice, namespace):
        for kind, name in ((DAEMON_SET, AGENT_NAME), (SECRET, AGENT_SECRET)):
            await _look_at(client, found, kind, name, place, needs_label=choice is not Choice.SEED)
        if place not in SYSTEM_NAMESPACES:
            await _look_at(client, found, NAMESPACE, place, None, needs_label=True)
    found.targets.sort(key=lambda target: ORDER.index(target.kind))
    return found


def _places(choice: Choice, namespace: str | None) -> list[str]:
    if namespace is not None:
        return [namespace]
    shapes = {Choice.OPENSHIFT: [Shape.OPENSHIFT], Choice.SEED: [Shape.SEED]}.get(choice, [Shape.OPENSHIFT, Shape.SEED])
    return [for_shape(shape).namespace for shape in shapes]


async def _look_at(
    client: ApiClient, found: Found, kind: Kind, name: str, namespace: str | None, *, needs_label: bool
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


def _target(kind: Kind, name: str, namespace: str | None, item: Json) -> Target:
    seen = objects.metadata(item)
    return Target(kind, name, namespace, str(seen.get("uid")), is_going=bool(seen.get("deletionTimestamp")))


def _carries_label(item: Json) -> bool:
    name, value = BOOTSTRAP_ONLY
    return bool(objects.field(item, "metadata", "labels", name) == value)
