"""What renderers are given: the resolved cluster, its keys, what the release holds, and what was drawn once for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from umbilical.hardway.config.cluster import Cluster, NodeRole, Switch
from umbilical.hardway.pki.certificate_set import HardwaySet

TUNNEL_IMAGE = "apiserver-network-proxy"


@dataclass(frozen=True)
class ReleasePayload:
    """A release, read; in the kubernetes profile only images and a version."""

    version: str
    image: str
    """The release image by digest; empty in the kubernetes profile."""
    images: Mapping[str, str]
    """Tag of the release (etcd, hyperkube, pod, ...) -> pull spec. The kubernetes profile has one per program."""
    manifests: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """File name -> content, as extracted from the release image."""
    crds: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Files of cluster-config-api, unfiltered: several variants of one CRD among them."""


@dataclass(frozen=True)
class ClusterIdentity:
    """Drawn at random once, and kept: the same in every later rendering."""

    cluster_id: str
    """A UUID."""
    infrastructure_name: str
    """The cluster's name and five characters."""
    kubeadmin_password: str = field(repr=False)
    kubeadmin_hash: str = field(repr=False)
    """bcrypt of it."""


@dataclass(frozen=True)
class NodeBase:
    """What a node's Ignition is merged onto."""

    config: bytes = field(repr=False)
    """An Ignition config: `spec.config.raw` of a rendered MachineConfig."""
    machine_config: bytes = field(repr=False)
    """The MachineConfig itself, as JSON."""
    name: str
    """`rendered-master-...`."""


@dataclass(frozen=True)
class Inputs:
    cluster: Cluster
    certificates: HardwaySet
    payload: ReleasePayload
    identity: ClusterIdentity
    pull_secret: bytes = field(default=b"", repr=False)
    bases: Mapping[NodeRole, NodeBase] = field(default_factory=dict)
    """Empty: the built-in base."""

    @property
    def has_tunnel(self) -> bool:
        """AUTO: where the payload brings the programs for it."""
        wish = self.cluster.konnectivity
        return wish is Switch.ON or (wish is Switch.AUTO and TUNNEL_IMAGE in self.payload.images)
