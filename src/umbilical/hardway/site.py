"""Where stages work: the cluster, its directory and artifacts, its machines, its API, and who is told."""

import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from umbilical.hardway.api import Api
from umbilical.hardway.config.cluster import Cluster
from umbilical.hardway.machines.interface import Machines
from umbilical.hardway.reporting import Reporter
from umbilical.hardway.trial import Trial
from umbilical.manifests.objects import IpAddress
from umbilical.manifests.tree import Asset


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
    trial: Trial | None = None
    """A service by which the cluster is tried; None where no image for one is known."""
    reissue: frozenset[str] = frozenset()
    """Names of nodes that may get a first certificate a second time."""
    sleep: Callable[[float], None] = time.sleep
    notes: MutableMapping[str, Any] = field(default_factory=dict)
    """Facts that later stages need and nobody can look up; kept in the state file. No secrets."""

    def api(self, address: IpAddress | None = None) -> Api:
        return Api(self.kubeconfig(address))

    def content(self, path: str) -> bytes:
        return self.assets[path].content
