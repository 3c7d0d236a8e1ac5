"""What stages work with: a cluster's directory, artifacts, machines, API, smoke test and reporter."""

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
"""As kubectl. With the usual 5 per second of controllers, some hundred manifests take a minute."""


class ClusterApi:
    """Synchronous calls to the API: each runs its own event loop."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    def call(self, ask: Callable[[ApiClient], Awaitable[Answered]], timeout_seconds: float = CALL_SECONDS) -> Answered:
        """Run `ask` with a new client. Raises ClusterError: the API returned an error, or did not answer in time."""

        async def run() -> Answered:
            async with (
                asyncio.timeout(timeout_seconds),
                make_client(self.kubeconfig, qps=QPS, burst=BURST, request_seconds=REQUEST_SECONDS) as client,
            ):
                return await ask(client)

        try:
            return asyncio.run(run())
        except TimeoutError:
            raise ApiUnreachable("all requests", f"timed out after {timeout_seconds:g} s") from None


class SmokeTest(Protocol):
    @property
    def namespace(self) -> str: ...

    @property
    def pod(self) -> str:
        """Name of the webhook's pod and of its Service."""

    @property
    def webhook_name(self) -> str: ...

    def webhook_objects(self, node_name: str) -> Sequence[dict[str, Any]]:
        """Make the webhook's objects with new keys: its pod bound to a node, the configuration last."""

    def review_object(self, verdict: str) -> dict[str, Any]:
        """Return an object that the webhook allows (`allow`) or denies (`deny`)."""

    def workload(self, replicas: int) -> Sequence[dict[str, Any]]:
        """A Deployment that spreads over nodes, and its Service; both are named `workload_name`."""

    @property
    def workload_name(self) -> str: ...

    def fetch_command(self, url: str) -> Sequence[str]:
        """Command for a pod of the workload that fetches a URL and prints the body."""

    @property
    def workload_port(self) -> int: ...


@dataclass
class Site:
    cluster: Cluster
    folder: Path
    """The cluster's directory: cluster.yaml, artifacts/, .umbilical/."""
    assets: Mapping[str, Asset]
    """Rendered files by path below artifacts/."""
    hashes: Mapping[str, str]
    """Recipe id -> content hash of its files."""
    has_tunnel: bool
    machines: Machines
    reporter: Reporter
    now: Callable[[], datetime]
    kubeconfig: Callable[[IpAddress | None], Path]
    """Writes an administrator's kubeconfig for the API at this address (None: the load balancer) and returns its path.
    By address, so that no DNS is needed."""
    files: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Stage number -> paths of `assets` that it writes."""
    operators: tuple[str, ...] = ()
    """ClusterOperators of the release, in its order."""
    reload: "Callable[[], Site] | None" = None
    """Renders again, after a stage whose output is an input of later ones, such as machine configs."""
    smoke_test: SmokeTest | None = None
    """Webhook and workload to test the cluster with; None without an image for them."""
    reissue: frozenset[str] = frozenset()
    """Names of nodes that may request a first certificate a second time."""
    sleep: Callable[[float], None] = time.sleep
    notes: MutableMapping[str, Any] = field(default_factory=dict)
    """Values for later stages, kept in the state file. No secrets."""

    def api(self, address: IpAddress | None = None) -> ClusterApi:
        return ClusterApi(self.kubeconfig(address))

    def content(self, path: str) -> bytes:
        return self.assets[path].content
