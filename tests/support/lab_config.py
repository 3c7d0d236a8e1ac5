"""The bootstrap.ign of a lab's cluster, without a lab."""

from datetime import UTC, datetime
from functools import cache

from umbilical.lab.bootstrap_config import Kubeconfigs, bootstrap_config
from umbilical.lab.control_plane import ADMIN_KUBECONFIG, render_control_plane
from umbilical.lab.topology import Family, Topology, plan_topology
from umbilical.manifests.control_plane_spec import ControlPlaneImages, ControlPlaneSpec
from umbilical.pki.control_plane_set import ControlPlaneNames, first_addresses, make_control_plane_set
from umbilical.pki.profiles import KeyType


def lab_topology(family: Family = Family.IPV4) -> Topology:
    return plan_topology(masters=1, workers=0, family=family)


@cache
def lab_config(family: Family = Family.IPV4) -> bytes:
    topology = lab_topology(family)
    address = topology.bootstrap.address
    names = ControlPlaneNames((address,), first_addresses(topology.service_networks), (address,))
    spec = ControlPlaneSpec(
        node_name="bootstrap",
        node_ip=topology.bootstrap.addresses[0].ip,
        service_networks=topology.service_networks,
        pod_networks=topology.pod_networks,
        images=ControlPlaneImages.tagged("localhost", "lab"),
        is_throwaway=True,
    )
    tree = render_control_plane(spec, make_control_plane_set(names, datetime.now(UTC), key_type=KeyType.ECDSA_P256))
    kubeconfig = tree[ADMIN_KUBECONFIG].content
    images = {"apiserver-network-proxy": "localhost/umbilical:lab"}
    return bootstrap_config(topology, tree, Kubeconfigs(kubeconfig, kubeconfig), images)
