"""Static pods among the artifacts, and the artifacts that the flags of their programs refer to."""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from umbilical.bootstrap.verify.documents import PodSpec, dig, parse_flags
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import ClusterNode
from umbilical.hardway.lint.facts import LintFacts, Unreadable


@dataclass(frozen=True)
class StaticPod:
    node: ClusterNode
    path: str
    """Path of the artifact."""
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
    def pod(self) -> PodSpec:
        """The pod with its first container, which runs the program."""
        return PodSpec(self.spec)

    def flag(self, name: str) -> str:
        """Return a flag's last value. Raises Unreadable: the flag is missing."""
        value = parse_flags(self.pod.container).values.get(f"--{name}")
        if value is None:
            raise Unreadable(f"{self.path} has no --{name}")
        return value

    def on_host(self, path: str) -> str:
        """Translate a container's path to the host. Raises Unreadable: it is not on a hostPath volume."""
        mount = self.pod.mount_of(path)
        found = mount.on_host(path) if mount else None
        if found is None:
            raise Unreadable(f"{self.path}: {path} is not on a hostPath volume")
        return found


def static_pods(facts: LintFacts, *nodes: ClusterNode) -> Iterator[StaticPod]:
    """List the pods of these nodes, or of all nodes, including late ones."""
    for node in nodes or facts.cluster.nodes:
        for folder in (layout.STATIC_PODS, layout.LATE_STATIC_PODS):
            for asset in facts.below(f"{folder}/{node.id}"):
                if "/" not in asset.path.removeprefix(f"{folder}/{node.id}/"):
                    yield StaticPod(node, asset.path, facts.document(asset.path))


def program_pods(facts: LintFacts, program: str, *nodes: ClusterNode) -> list[StaticPod]:
    """List the pods whose first container runs a program."""
    return [pod for pod in static_pods(facts, *nodes) if pod.pod.container.get("name") == program]


def program_pod(facts: LintFacts, program: str, node: ClusterNode) -> StaticPod:
    """Return a program's pod on a node. Raises Unreadable: there is none, or there are several."""
    found = program_pods(facts, program, node)
    if len(found) != 1:
        raise Unreadable(f"{node.id} has {len(found)} static pods of {program}, not one")
    return found[0]


KUBE_APISERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
ETCD: Final = "etcd"
VERSION_OPERATOR: Final = "cluster-version-operator"
# File names are unique over these directories, so the last part of a path on a node identifies the artifact.
_SOURCES: Final = (layout.TLS, layout.BUNDLES, layout.AUTH)


@dataclass(frozen=True)
class ProgramPod:
    facts: LintFacts
    pod: StaticPod

    @property
    def path(self) -> str:
        """Path of the manifest."""
        return self.pod.path

    def values(self, flag: str) -> list[str]:
        """List the values of a flag that may be repeated."""
        container = self.pod.pod.container
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        found = [word for word in words if isinstance(word, str) and word.startswith(f"--{flag}=")]
        return [word.removeprefix(f"--{flag}=") for word in found]

    def file(self, flag: str) -> str:
        """Return the artifact of a flag's file. Raises Unreadable: the flag or the artifact is missing."""
        return self.artifact(self.pod.flag(flag))

    def artifact(self, path: str) -> str:
        """Return the artifact of a path in the pod."""
        name = posixpath.basename(path)
        found = next((f"{source}/{name}" for source in _SOURCES if f"{source}/{name}" in self.facts.assets), None)
        if found is None:
            raise Unreadable(f"{self.path} refers to {path}, but there is no artifact {name}")
        return found


def programs(facts: LintFacts, name: str) -> list[ProgramPod]:
    """Find a program in the static pods of all nodes, including late ones. Raises Unreadable: there is none."""
    found = [ProgramPod(facts, pod) for pod in program_pods(facts, name)]
    if not found:
        raise Unreadable(f"no static pod runs {name}")
    return found
