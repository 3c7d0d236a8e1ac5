"""Static pods of a rendered tree, as a kubelet would find them, and the artifacts that their programs' flags name."""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from umbilical.bootstrap.verify.documents import Pod, dig, parse_flags
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import ClusterNode
from umbilical.hardway.lint.facts import LintFacts, Unreadable


@dataclass(frozen=True)
class StaticPod:
    node: ClusterNode
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
        """Return a flag's value; of several the last. Raises Unreadable: it is not there."""
        value = parse_flags(self.pod.container).values.get(f"--{name}")
        if value is None:
            raise Unreadable(f"{self.path} has no --{name}")
        return value

    def on_host(self, path: str) -> str:
        """Translate a path of the container through its mounts. Raises Unreadable: it lies on no hostPath."""
        mount = self.pod.mount_of(path)
        found = mount.on_host(path) if mount else None
        if found is None:
            raise Unreadable(f"{self.path}: {path} lies on no hostPath")
        return found


def static_pods(facts: LintFacts, *nodes: ClusterNode) -> Iterator[StaticPod]:
    """List the pods of these nodes, those that wait included; without nodes, of all."""
    for node in nodes or facts.cluster.nodes:
        for folder in (layout.STATIC_PODS, layout.LATE_STATIC_PODS):
            for asset in facts.below(f"{folder}/{node.id}"):
                if "/" not in asset.path.removeprefix(f"{folder}/{node.id}/"):
                    yield StaticPod(node, asset.path, facts.document(asset.path))


def program_pods(facts: LintFacts, program: str, *nodes: ClusterNode) -> list[StaticPod]:
    """List the pods whose first container is a program's."""
    return [pod for pod in static_pods(facts, *nodes) if pod.pod.container.get("name") == program]


def program_pod(facts: LintFacts, program: str, node: ClusterNode) -> StaticPod:
    """Return a program's only pod on a node. Raises Unreadable: there is none, or there are several."""
    found = program_pods(facts, program, node)
    if len(found) != 1:
        raise Unreadable(f"{node.id} has {len(found)} static pods of {program}, not one")
    return found[0]


KUBE_APISERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
ETCD: Final = "etcd"
VERSION_OPERATOR: Final = "cluster-version-operator"
# Names are unique over all of them, so that the last part of a path on a node says which artifact it is.
_SOURCES: Final = (layout.TLS, layout.BUNDLES, layout.AUTH)


@dataclass(frozen=True)
class ProgramPod:
    facts: LintFacts
    pod: StaticPod

    @property
    def path(self) -> str:
        """Of the manifest."""
        return self.pod.path

    def values(self, flag: str) -> list[str]:
        """List what a flag is set to, that may stand several times."""
        container = self.pod.pod.container
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        found = [word for word in words if isinstance(word, str) and word.startswith(f"--{flag}=")]
        return [word.removeprefix(f"--{flag}=") for word in found]

    def file(self, flag: str) -> str:
        """Return the artifact that a flag's file comes from. Raises Unreadable: no such flag, or no such artifact."""
        return self.artifact(self.pod.flag(flag))

    def artifact(self, path: str) -> str:
        """Return the artifact that lies under this path in the pod."""
        name = posixpath.basename(path)
        found = next((f"{source}/{name}" for source in _SOURCES if f"{source}/{name}" in self.facts.assets), None)
        if found is None:
            raise Unreadable(f"{self.path} names {path}, and no artifact is called so")
        return found


def programs(facts: LintFacts, name: str) -> list[ProgramPod]:
    """Find a program in the static pods of every node, those that wait included. Raises Unreadable: there is none."""
    found = [ProgramPod(facts, pod) for pod in program_pods(facts, name)]
    if not found:
        raise Unreadable(f"no static pod runs {name}")
    return found
