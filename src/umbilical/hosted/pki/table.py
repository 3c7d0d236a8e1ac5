"""Certificates and signers of a hosted control plane, with HyperShift's names of Secrets.

Two layouts. Separate: each listener verifies its clients by a signer of their own, so that the frontend refuses an
agent's certificate. Single: one signer for all, as in HyperShift.
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
    """A party that verifies certificates by a signer."""

    CLIENTS = "clients"
    """Clients of the frontend (kube-apiserver, proxies, users), who verify the frontend."""
    AGENTS = "agents"
    """Agents, which verify the agent listener."""
    FRONTEND = "frontend"
    """The frontend, which verifies clients."""
    AGENT_LISTENER = "agent-listener"
    """The agent listener, which verifies agents."""


@dataclass(frozen=True)
class HostedLeaf:
    id: str
    """Name of its Secret."""
    common_name: str
    usage: Usage
    verified_by: Trust
    """The peer that verifies this certificate."""


SERVER: Final = HostedLeaf("konnectivity-server", "konnectivity-server-local", Usage.SERVER, Trust.CLIENTS)
CLUSTER: Final = HostedLeaf("konnectivity-cluster", "konnectivity-server", Usage.SERVER, Trust.AGENTS)
CLIENT: Final = HostedLeaf("konnectivity-client", "konnectivity-client", Usage.CLIENT, Trust.FRONTEND)
AGENT: Final = HostedLeaf("konnectivity-agent", "konnectivity-agent", Usage.CLIENT, Trust.AGENT_LISTENER)
# HyperShift has one for all agents. Here identifiers are bound to identities, so this agent needs its own.
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
    """Return the id of the signer by which this party verifies certificates."""
    return _LAYOUTS[layout][trust]


def signer_ids(layout: Signers) -> tuple[str, ...]:
    """Return the id of every signer of a layout: also the name of its Secret and its common name."""
    return tuple(dict.fromkeys(_LAYOUTS[layout].values()))
