"""The interface of a runner, which runs the pods of a node: as processes, or with the real kubelet.

Both read static pods from the node's `/etc/kubernetes/manifests`.
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
    """In the lab's PID namespace; None while nothing runs."""
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
    """The node's address for a pod with hostNetwork."""
    containers: tuple[ContainerStatus, ...]

    @property
    def is_running(self) -> bool:
        return bool(self.containers) and all(container.pid is not None for container in self.containers)

    @property
    def is_ready(self) -> bool:
        return self.is_running and all(container.is_ready for container in self.containers)


class LabRunner(Protocol):
    """What scenarios and breakages need. `pod` is a name, or its part before a generated suffix."""

    @property
    def kind(self) -> RunnerKind: ...

    def start(self, lab: Lab, node: str, kubeconfig: str | None) -> None:
        """Start to run pods on a node.

        `kubeconfig` is a path on the node, which registers and gets pods from the API. None: static pods only.
        """

    def pods(self, lab: Lab, node: str) -> list[PodStatus]: ...

    def signal(self, lab: Lab, node: str, pod: str, container: str, number: signal.Signals) -> None: ...

    def logs(self, lab: Lab, node: str, pod: str, container: str) -> str:
        """Return all output of the container, earlier runs included, oldest first."""
        ...


def is_called(name: str, wanted: str) -> bool:
    """Return whether a pod has this name, with or without a generated suffix."""
    return name == wanted or name.startswith(f"{wanted}-")


def is_log_folder(name: str, pod: str) -> bool:
    """Return whether a log folder, NAMESPACE_NAME_UID, belongs to a pod."""
    parts = name.split("_")
    return len(parts) == 3 and is_called(parts[1], pod)
