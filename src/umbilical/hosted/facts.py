"""What `hosted check` finds out before it judges: plain values, with the reason wherever something is not known."""

from dataclasses import dataclass, field
from datetime import datetime

from umbilical.cluster.client import Json
from umbilical.pki.certificate import Certificate


@dataclass(frozen=True)
class Unknown:
    """Why there are no facts of some kind."""

    reason: str
    is_failure: bool = False
    """It was asked for and did not work, which is worse than not having been asked for."""


@dataclass(frozen=True)
class ServerHealth:
    """One server, as its health port tells."""

    name: str
    trouble: str = ""
    """Why it does not answer; empty if it does."""
    agents: dict[str, int] = field(default_factory=dict)
    """Connected ones, by the strategy that would choose them."""

    @property
    def node_agents(self) -> int:
        """Those for everything that is not the control plane's: by default route, or simply all."""
        named = [self.agents[strategy] for strategy in ("defaultRoute", "default") if strategy in self.agents]
        return named[0] if named else max(self.agents.values(), default=0)


@dataclass(frozen=True)
class DialProbe:
    """One dial through one server, and what came of it."""

    server: str
    subject: str
    is_ok: bool
    text: str
    """Which agent, or why not."""


@dataclass(frozen=True)
class HostedNode:
    name: str
    address: str
    """Internal IP; empty if it has none."""
    kubelet_port: int
    is_ready: bool


@dataclass(frozen=True)
class LogRead:
    """One pod's log, asked for as users do: through kube-apiserver."""

    pod: str
    node: str
    trouble: str = ""


@dataclass(frozen=True)
class HostedFacts:
    """Of the hosted cluster's API."""

    nodes: tuple[HostedNode, ...]
    daemon_set: Json | None
    agent_pods: tuple[Json, ...] = ()
    logs: tuple[LogRead, ...] = ()


@dataclass(frozen=True)
class ManagementFacts:
    """Of the control plane's namespace."""

    server_pods: tuple[Json, ...]
    services: dict[str, Json]
    policies: tuple[Json, ...] = ()
    control_plane_agent: Json | None = None
    """Its Deployment."""

    def service(self, name: str) -> Json | None:
        return self.services.get(name)


@dataclass(frozen=True)
class CertificateFact:
    name: str
    certificate: Certificate | None
    trouble: str = ""
    """Why it cannot be read."""
    authorities: tuple[Certificate, ...] | None = None
    """By which the other side verifies it; None: not known."""


@dataclass(frozen=True)
class CheckFacts:
    now: datetime
    management: ManagementFacts | Unknown
    hosted: HostedFacts | Unknown
    health: tuple[ServerHealth, ...] | Unknown
    certificates: tuple[CertificateFact, ...] | Unknown
    kubelets: tuple[DialProbe, ...] | Unknown
    """Every node's, through every server."""
    control_plane: tuple[DialProbe, ...] | Unknown
    """Every identifier of the control-plane agent, through every server."""
    intruder: tuple[DialProbe, ...] | Unknown
    """An agent's certificate at every frontend; ok if it is turned away."""
    proxies: tuple[ServerHealth, ...] | Unknown
    node_addresses: tuple[str, ...] | Unknown
