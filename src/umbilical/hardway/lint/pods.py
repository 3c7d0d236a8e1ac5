"""Static pods of a rendered tree, as a kubelet would find them: on which node, whether at once, with which mounts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from umbilical.bootstrap.verify.documents import Pod, dig, parse_flags
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import Node
from umbilical.hardway.lint.facts import Facts, Unreadable


@dataclass(frozen=True)
class StaticPod:
    node: Node
    path: str
    """Of the artifact."""
    document: dict[str, Any]

    @property
    def file(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def is_late(self) -> bool:
        return self.path.startswith(f"{layout.LATE_STATIC_PODS}/")

    @property
    def spec(self) -> dict[str, Any]:
        found = dig(self.document, "spec")
        return found if isinstance(found, dict) else {}

    @property
    def pod(self) -> Pod:
        """With its first container, which is the program's own."""
        return Pod(self.spec)

    def flag(self, name: str) -> str:
        """Return a flag's value; of several the last.

        Raises:
            Unreadable: it is not there.
        """
        value = parse_flags(self.pod.container).values.get(f"--{name}")
        if value is None:
            raise Unreadable(f"{self.path} has no --{name}")
        return value

    def on_host(self, path: str) -> str:
        """Translate a path of the container through its mounts.

        Raises:
            Unreadable: it lies on no hostPath.
        """
        mount = self.pod.mount_of(path)
        found = mount.on_host(path) if mount else None
        if found is None:
            raise Unreadable(f"{self.path}: {path} lies on no hostPath")
        return found


def static_pods(facts: Facts, *nodes: Node) -> Iterator[StaticPod]:
    """List the pods of these nodes, those that wait included; without nodes, of all."""
    for node in nodes or facts.cluster.nodes:
        for folder in (layout.STATIC_PODS, layout.LATE_STATIC_PODS):
            for asset in facts.below(f"{folder}/{node.id}"):
                if "/" not in asset.path.removeprefix(f"{folder}/{node.id}/"):
                    yield StaticPod(node, asset.path, facts.document(asset.path))


def program_pods(facts: Facts, program: str, *nodes: Node) -> list[StaticPod]:
    """List the pods whose first container is a program's."""
    return [pod for pod in static_pods(facts, *nodes) if pod.pod.container.get("name") == program]


def program_pod(facts: Facts, program: str, node: Node) -> StaticPod:
    """Return a program's only pod on a node.

    Raises:
        Unreadable: there is none, or there are several.
    """
    found = program_pods(facts, program, node)
    if len(found) != 1:
        raise Unreadable(f"{node.id} has {len(found)} static pods of {program}, not one")
    return found[0]
