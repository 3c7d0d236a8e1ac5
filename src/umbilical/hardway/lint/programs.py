"""Programs of static pods and the artifacts that their flags name: keys, certificates, kubeconfigs."""

import posixpath
from dataclasses import dataclass
from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.lint.facts import Facts, Unreadable
from umbilical.hardway.lint.pods import StaticPod, program_pods

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
        """Return the artifact that a flag's file comes from.

        Raises:
            Unreadable: there is no such flag, or no such artifact.
        """
        return self.artifact(self.pod.flag(flag))

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
    found = [Program(facts, pod) for pod in program_pods(facts, name)]
    if not found:
        raise Unreadable(f"no static pod runs {name}")
    return found
