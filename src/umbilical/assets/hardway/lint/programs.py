"""Programs of static pods, as their manifests have them: on which node, with which flags, which files those name."""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Node
from umbilical.assets.hardway.lint.facts import Facts, Unreadable

KUBE_APISERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
ETCD: Final = "etcd"
VERSION_OPERATOR: Final = "cluster-version-operator"
# Names are unique over all of them, so that the last part of a path on a node says which artifact it is.
_SOURCES: Final = (layout.TLS, layout.BUNDLES, layout.AUTH)


@dataclass(frozen=True)
class Program:
    facts: Facts
    node: Node
    path: str
    """Of the artifact."""
    command: tuple[str, ...]
    """With its arguments."""

    def values(self, flag: str) -> list[str]:
        return [word.removeprefix(f"--{flag}=") for word in self.command if word.startswith(f"--{flag}=")]

    def value(self, flag: str) -> str:
        """Return what a flag is set to; of several the last, as programs do.

        Raises:
            Unreadable: it is not there.
        """
        found = self.values(flag)
        if not found:
            raise Unreadable(f"{self.path} has no --{flag}")
        return found[-1]

    def file(self, flag: str) -> str:
        """Return the artifact that a flag's file comes from."""
        return self.artifact(self.value(flag))

    def artifact(self, path: str) -> str:
        """Return the artifact that lies under this path in the pod."""
        name = posixpath.basename(path)
        found = next((f"{source}/{name}" for source in _SOURCES if f"{source}/{name}" in self.facts.assets), None)
        if found is None:
            raise Unreadable(f"{self.path} names {path}, and no artifact is called so")
        return found


def programs(facts: Facts, name: str) -> list[Program]:
    """Find a program in the static pods of every node, those that wait included.

    Raises:
        Unreadable: there is none.
    """
    found = [
        Program(facts, node, path, command)
        for node in facts.cluster.nodes
        for path, container, command in _commands(facts, node)
        # The release image begins with its operator, so that the command does not name it.
        if name in (container, *map(posixpath.basename, command[:2]))
    ]
    if not found:
        raise Unreadable(f"no static pod runs {name}")
    return found


def _commands(facts: Facts, node: Node) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for folder in (layout.STATIC_PODS, layout.LATE_STATIC_PODS):
        for asset in facts.below(f"{folder}/{node.id}"):
            for document in facts.documents(asset.path) if asset.path.endswith(".yaml") else ():
                yield from ((asset.path, name, command) for name, command in _containers(document))


def _containers(document: dict[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    containers = (document.get("spec") or {}).get("containers") or () if document.get("kind") == "Pod" else ()
    for one in containers:
        yield str(one.get("name")), tuple(map(str, (*(one.get("command") or ()), *(one.get("args") or ()))))
