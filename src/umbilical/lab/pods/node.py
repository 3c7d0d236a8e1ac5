"""What a pod's worker knows of the node it runs on, and where files of pods lie there."""

import hashlib
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from umbilical.lab.images import Image
from umbilical.lab.pods.spec import Kind, Pod

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

# kubelet.go: the first restart comes at once, the next after this, each twice the one before.
BACK_OFF_SECONDS: Final = 10.0
GRACE_CAP_SECONDS: Final = 10.0
"""A lab that goes down does not wait half a minute for a program that does not listen."""


class Sources(Protocol):
    """Where the values of Secrets and ConfigMaps and service account tokens come from."""

    async def values(self, kind: Kind, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """Return all values by key; None while there is no such object."""

    async def token(self, pod: Pod, audience: str, lifetime_seconds: int) -> str | None:
        """Return a fresh token of the pod's service account; None where nobody signs any."""


@dataclass(frozen=True)
class Folders:
    run: Path = Path("/run/podrunner")
    logs: Path = Path("/var/log/pods")
    state: Path = Path("/var/lib/podrunner")
    manifests: Path = Path("/etc/kubernetes/manifests")
    daemons: Path = Path("/etc/kubernetes/daemons")

    @property
    def status_file(self) -> Path:
        """On the node's disk, so that it can be read from outside."""
        return self.run / "status.json"

    @property
    def container_root(self) -> Path:
        """Every container mounts its own root here, in a mount namespace of its own."""
        return self.run / "root"

    @property
    def secrets(self) -> Path:
        """In memory: Secrets of pods are on no disk."""
        return self.run / "pods"

    @property
    def networks(self) -> Path:
        return self.run / "netns"

    def pod_files(self, pod: Pod) -> Path:
        return self.state / "pods" / pod.uid

    def pod_logs(self, pod: Pod) -> Path:
        return self.logs / f"{pod.namespace}_{pod.name}_{pod.uid}"


@dataclass(frozen=True)
class Node:
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
        """The mark of every container on this node; nodes of a lab see each other's processes."""
        place = hashlib.sha256(str(self.folders.run).encode()).hexdigest()[:8]
        return f"pod-on-{self.name}-{place}"


def ignore() -> None:
    """Nobody wants to know."""


Changed = Callable[[], None]
