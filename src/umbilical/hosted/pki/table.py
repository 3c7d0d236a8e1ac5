"""Who signs what for whom in a hosted control plane: one table, with the names that HyperShift gave its Secrets.

Two layouts. Separate: each listener knows its clients by a signer of their own, so that an agent's certificate opens
nothing on the frontend. Single: one signer for all, as HyperShift has had it.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from umbilical.pki.profiles import Usage

ORGANIZATION: Final = "kubernetes"


class Signers(Enum):
    SEPARATE = "separate"
    SINGLE = "single"


class Trust(Enum):
    """Somebody who has to know others by their signer."""

    CLIENTS = "clients"
    """Of the frontend: kube-apiserver, proxies, people."""
    AGENTS = "agents"
    """Of the listener that they connect to."""
    FRONTEND = "frontend"
    """The server, of clients."""
    AGENT_LISTENER = "agent-listener"
    """The server, of agents."""


@dataclass(frozen=True)
class HostedLeaf:
    id: str
    """The name of its Secret."""
    common_name: str
    usage: Usage
    verified_by: Trust
    """Whoever this certificate is shown to."""


SERVER: Final = HostedLeaf("konnectivity-server", "konnectivity-server-local", Usage.SERVER, Trust.CLIENTS)
CLUSTER: Final = HostedLeaf("konnectivity-cluster", "konnectivity-server", Usage.SERVER, Trust.AGENTS)
CLIENT: Final = HostedLeaf("konnectivity-client", "konnectivity-client", Usage.CLIENT, Trust.FRONTEND)
AGENT: Final = HostedLeaf("konnectivity-agent", "konnectivity-agent", Usage.CLIENT, Trust.AGENT_LISTENER)
# HyperShift has one for all agents. Identifiers are bound to identities here, so this agent needs one of its own.
CONTROL_PLANE_AGENT: Final = HostedLeaf(
    "konnectivity-agent-control-plane", "konnectivity-agent-control-plane", Usage.CLIENT, Trust.AGENT_LISTENER
)
LEAVES: Final = (SERVER, CLUSTER, CLIENT, AGENT, CONTROL_PLANE_AGENT)

SINGLE_SIGNER: Final = "konnectivity-signer"
_SEPARATE: Final = {
    Trust.CLIENTS: "konnectivity-server-serving-signer",
    Trust.AGENTS: "konnectivity-cluster-serving-signer",
    Trust.FRONTEND: "konnectivity-server-auth-signer",
    Trust.AGENT_LISTENER: "konnectivity-client-auth-signer",
}
_LAYOUTS: Final = {
    Signers.SEPARATE: _SEPARATE,
    Signers.SINGLE: dict.fromkeys(Trust, SINGLE_SIGNER),
}


def signer_of(trust: Trust, layout: Signers) -> str:
    """Return the id of the signer by which this one knows others."""
    return _LAYOUTS[layout][trust]


def signer_ids(layout: Signers) -> tuple[str, ...]:
    """Return every signer of a layout, which is also the name of its Secret and its common name."""
    return tuple(dict.fromkeys(_LAYOUTS[layout].values()))
