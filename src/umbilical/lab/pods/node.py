"""The node as seen by the pod runner, and the directories of pods on it."""

import hashlib
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from umbilical.lab.images import Image
from umbilical.lab.pods.spec import LabPod, SourceKind

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

# kubelet.go: the first restart is immediate, the next comes after this, each pause doubles.
BACK_OFF_SECONDS: Final = 10.0
GRACE_CAP_SECONDS: Final = 10.0
"""Caps grace periods, so that `lab down` is fast."""


class Sources(Protocol):
    """Source of Secrets, ConfigMaps and service account tokens."""

    async def values(self, kind: SourceKind, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """Return all values by key; None if the object does not exist."""

    async def token(self, pod: LabPod, audience: str, lifetime_seconds: int) -> str | None:
        """Return a new token of the pod's service account; None if this source has no tokens."""


@dataclass(frozen=True)
class Folders:
    run: Path = Path("/run/podrunner")
    logs: Path = Path("/var/log/pods")
    state: Path = Path("/var/lib/podrunner")
    manifests: Path = Path("/etc/kubernetes/manifests")
    daemons: Path = Path("/etc/kubernetes/daemons")

    @property
    def status_file(self) -> Path:
        """On the node's disk, so that it is readable from outside."""
        return self.run / "status.json"

    @property
    def container_root(self) -> Path:
        """Mount point of each container's root, in the container's own mount namespace."""
        return self.run / "root"

    @property
    def secrets(self) -> Path:
        """In memory: Secrets must not be on disk."""
        return self.run / "pods"

    @property
    def networks(self) -> Path:
        return self.run / "netns"

    def pod_files(self, pod: LabPod) -> Path:
        return self.state / "pods" / pod.uid

    def pod_logs(self, pod: LabPod) -> Path:
        return self.logs / f"{pod.namespace}_{pod.name}_{pod.uid}"


@dataclass(frozen=True)
class RunnerNode:
    name: str
    addresses: tuple[str, ...]
    images: Mapping[str, Image]
    pod_networks: tuple[IpNetwork, ...] = ()
    labels: Mapping[str, str] | None = None
    back_off_seconds: float = BACK_OFF_SECONDS
    folders: Folders = Folders()

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def owner(self) -> str:
        """Identifies the containers of this node: nodes of a lab see each other's processes."""
        place = hashlib.sha256(str(self.folders.run).encode()).hexdigest()[:8]
        return f"pod-on-{self.name}-{place}"


def ignore() -> None:
    """Default callback."""


Changed = Callable[[], None]
