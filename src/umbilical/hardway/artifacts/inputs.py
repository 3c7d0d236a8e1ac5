"""The input of every renderer: the resolved cluster, its certificates, the release, and its random identity."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from umbilical.hardway.config.cluster import Cluster, NodeRole, Switch
from umbilical.hardway.pki.certificate_set import HardwaySet

TUNNEL_IMAGE = "apiserver-network-proxy"


@dataclass(frozen=True)
class ReleasePayload:
    """The content of a release; the kubernetes profile has only images and a version."""

    version: str
    image: str
    """The release image by digest; empty in the kubernetes profile."""
    images: Mapping[str, str]
    """Tag of the release (etcd, hyperkube, pod, ...), or name of a program in the kubernetes profile -> pull spec."""
    manifests: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """File name -> content, as extracted from the release image."""
    crds: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """CRD files of the release, unfiltered: they contain several variants of a CRD."""


@dataclass(frozen=True)
class ClusterIdentity:
    """Random values of a cluster, generated once and kept for every later rendering."""

    cluster_id: str
    """A UUID."""
    infrastructure_name: str
    """The cluster's name and five characters."""
    kubeadmin_password: str = field(repr=False)
    kubeadmin_hash: str = field(repr=False)
    """bcrypt hash of the password."""


@dataclass(frozen=True)
class NodeBase:
    """The base config that a node's own files and units are merged into."""

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
    """Empty: the built-in base is used."""

    @property
    def has_tunnel(self) -> bool:
        """AUTO: on if the payload has the tunnel's image."""
        wish = self.cluster.konnectivity
        return wish is Switch.ON or (wish is Switch.AUTO and TUNNEL_IMAGE in self.payload.images)
