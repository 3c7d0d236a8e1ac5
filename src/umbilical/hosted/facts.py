"""What `hosted check` gathers before it evaluates: plain values, or the reason why a fact is unknown."""

from dataclasses import dataclass, field
from datetime import datetime

from umbilical.cluster.client import Json
from umbilical.pki.certificate import Certificate


@dataclass(frozen=True)
class Unknown:
    """Why a fact is not known."""

    reason: str
    is_failure: bool = False
    """The query failed; False: it was not requested."""


@dataclass(frozen=True)
class ServerHealth:
    """One server, as reported by its health port."""

    name: str
    trouble: str = ""
    """Why it does not answer; empty if it does."""
    agents: dict[str, int] = field(default_factory=dict)
    """Number of connected agents by proxy strategy."""

    @property
    def node_agents(self) -> int:
        """Agents on nodes: those of the default route, or all."""
        named = [self.agents[strategy] for strategy in ("defaultRoute", "default") if strategy in self.agents]
        return named[0] if named else max(self.agents.values(), default=0)


@dataclass(frozen=True)
class DialProbe:
    """One dial through one server, and its result."""

    server: str
    subject: str
    is_ok: bool
    text: str
    """The agent, or the failure."""


@dataclass(frozen=True)
class HostedNode:
    name: str
    address: str
    """Internal IP; empty if it has none."""
    kubelet_port: int
    is_ready: bool


@dataclass(frozen=True)
class LogRead:
    """One pod's log, read through kube-apiserver as users do."""

    pod: str
    node: str
    trouble: str = ""


@dataclass(frozen=True)
class HostedFacts:
    """From the hosted cluster's API."""

    nodes: tuple[HostedNode, ...]
    daemon_set: Json | None
    agent_pods: tuple[Json, ...] = ()
    logs: tuple[LogRead, ...] = ()


@dataclass(frozen=True)
class ManagementFacts:
    """From the control plane's namespace."""

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
    """Why it could not be read."""
    authorities: tuple[Certificate, ...] | None = None
    """CAs by which the peer verifies it; None: unknown."""


@dataclass(frozen=True)
class CheckFacts:
    now: datetime
    management: ManagementFacts | Unknown
    hosted: HostedFacts | Unknown
    health: tuple[ServerHealth, ...] | Unknown
    certificates: tuple[CertificateFact, ...] | Unknown
    kubelets: tuple[DialProbe, ...] | Unknown
    """Of every node, through every server."""
    control_plane: tuple[DialProbe, ...] | Unknown
    """Every identifier of the control-plane agent, through every server."""
    intruder: tuple[DialProbe, ...] | Unknown
    """An agent's certificate at every frontend; ok if the frontend refuses it."""
    proxies: tuple[ServerHealth, ...] | Unknown
    node_addresses: tuple[str, ...] | Unknown
