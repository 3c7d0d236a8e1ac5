"""How the pods of a node come to run: as processes under a runner of ours, or under the real kubelet.

Static pods lie in the node's `/etc/kubernetes/manifests`, whoever runs them.
"""

import signal
from dataclasses import dataclass
from typing import Final, Protocol

from umbilical.lab.lab import Lab
from umbilical.lab.state import RunnerKind

MANIFESTS: Final = "/etc/kubernetes/manifests"


@dataclass(frozen=True)
class ContainerStatus:
    name: str
    image: str
    pid: int | None
    """As the lab's own processes see it; None while nothing runs."""
    restarts: int
    is_ready: bool
    last_exit: int | None = None
    """Negative: the signal that ended it."""


@dataclass(frozen=True)
class PodStatus:
    namespace: str
    name: str
    node: str
    address: str
    """The node's own for a pod in its network."""
    containers: tuple[ContainerStatus, ...]

    @property
    def is_running(self) -> bool:
        return bool(self.containers) and all(container.pid is not None for container in self.containers)

    @property
    def is_ready(self) -> bool:
        return self.is_running and all(container.is_ready for container in self.containers)


class LabRunner(Protocol):
    """What scenarios and breakages need of a runner. `pod` is a name or the part before a generated suffix."""

    @property
    def kind(self) -> RunnerKind: ...

    def start(self, lab: Lab, node: str, kubeconfig: str | None) -> None:
        """Begin to run pods on a node.

        `kubeconfig` is a path on the node: the node is registered and takes pods from the API. None: static pods only.
        """

    def pods(self, lab: Lab, node: str) -> list[PodStatus]: ...

    def signal(self, lab: Lab, node: str, pod: str, container: str, number: signal.Signals) -> None: ...

    def logs(self, lab: Lab, node: str, pod: str, container: str) -> str:
        """Everything that the container printed, earlier runs included, oldest first."""
        ...


def is_called(name: str, wanted: str) -> bool:
    """Tell whether a pod has this name, or begins with it before a generated suffix."""
    return name == wanted or name.startswith(f"{wanted}-")


def is_log_folder(name: str, pod: str) -> bool:
    """The folder of a pod's logs is NAMESPACE_NAME_UID; neither of these has an underscore."""
    parts = name.split("_")
    return len(parts) == 3 and is_called(parts[1], pod)
