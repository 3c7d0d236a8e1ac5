"""What stages work with: a cluster's directory, its artifacts, machines and API, the trial service, and who is told."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from umbilical.cluster.client import ApiClient, make_client
from umbilical.fault import ApiUnreachable
from umbilical.hardway.config.cluster import Cluster
from umbilical.hardway.machines.interface import Machines
from umbilical.hardway.waiting import Reporter
from umbilical.manifests.objects import IpAddress
from umbilical.manifests.tree import Asset

Answered = TypeVar("Answered")

REQUEST_SECONDS: Final = 20.0
CALL_SECONDS: Final = 120.0
QPS: Final = 50.0
BURST: Final = 300
"""As kubectl asks. With what is usual for controllers, 5 a second, some hundred manifests take a minute."""


class ClusterApi:
    """Stages are plain functions; each call runs its own event loop to its end."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    def call(self, ask: Callable[[ApiClient], Awaitable[Answered]], timeout_seconds: float = CALL_SECONDS) -> Answered:
        """Ask with a client of its own. Raises ClusterError: what the API said, or that it was silent or too slow."""

        async def run() -> Answered:
            async with (
                asyncio.timeout(timeout_seconds),
                make_client(self.kubeconfig, qps=QPS, burst=BURST, request_seconds=REQUEST_SECONDS) as client,
            ):
                return await ask(client)

        try:
            return asyncio.run(run())
        except TimeoutError:
            raise ApiUnreachable("all of it", f"it took longer than {timeout_seconds:g} s") from None


class SmokeTest(Protocol):
    @property
    def namespace(self) -> str: ...

    @property
    def pod(self) -> str:
        """The name of the webhook's pod, which is its Service's as well."""

    @property
    def webhook_name(self) -> str: ...

    def webhook_objects(self, node_name: str) -> Sequence[dict[str, Any]]:
        """Make what the webhook needs, its pod bound to a node, the configuration last. New keys each time."""

    def judged(self, verdict: str) -> dict[str, Any]:
        """Return an object that the webhook allows (`allow`) or denies (`deny`)."""

    def workload(self, replicas: int) -> Sequence[dict[str, Any]]:
        """A Deployment that spreads over nodes, and its Service; both are called like `workload_name`."""

    @property
    def workload_name(self) -> str: ...

    def fetch_command(self, url: str) -> Sequence[str]:
        """What to run in a pod of the workload so that it fetches a URL and prints the body."""

    @property
    def workload_port(self) -> int: ...


@dataclass
class Site:
    cluster: Cluster
    folder: Path
    """The cluster's directory: cluster.yaml, artifacts/, .umbilical/."""
    assets: Mapping[str, Asset]
    """What is rendered, by path below artifacts/."""
    hashes: Mapping[str, str]
    """Recipe id -> content hash of all that it made."""
    has_tunnel: bool
    machines: Machines
    reporter: Reporter
    now: Callable[[], datetime]
    kubeconfig: Callable[[IpAddress | None], Path]
    """Writes an administrator's kubeconfig for the API at this address (None: the load balancer's) and says where.
    By address, so that no resolver is needed."""
    files: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Number of a stage -> the paths of `assets` that it writes: those of the recipes with its number."""
    operators: tuple[str, ...] = ()
    """ClusterOperators that the release brings, in its order: an empty list of them is never taken for success."""
    reload: "Callable[[], Site] | None" = None
    """Renders anew: after a stage whose outcome is an input of later ones, such as machine configs."""
    smoke_test: SmokeTest | None = None
    """A service by which the cluster is tried; None where no image for one is known."""
    reissue: frozenset[str] = frozenset()
    """Names of nodes that may get a first certificate a second time."""
    sleep: Callable[[float], None] = time.sleep
    notes: MutableMapping[str, Any] = field(default_factory=dict)
    """Facts that later stages need and nobody can look up; kept in the state file. No secrets."""

    def api(self, address: IpAddress | None = None) -> ClusterApi:
        return ClusterApi(self.kubeconfig(address))

    def content(self, path: str) -> bytes:
        return self.assets[path].content
