"""The recipe of stage 02: all that lies around the nodes, as files."""

from umbilical.hardway.artifacts.infrastructure import places
from umbilical.hardway.artifacts.infrastructure.haproxy import haproxy_bootstrap, haproxy_final
from umbilical.hardway.artifacts.infrastructure.host_plan import plan_json, plan_script
from umbilical.hardway.artifacts.infrastructure.libvirt_domain import domain_xml
from umbilical.hardway.artifacts.infrastructure.libvirt_network import network_xml
from umbilical.hardway.artifacts.infrastructure.zones import cluster_zone, corefile, reverse_zone
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.config.cluster import Cluster, Libvirt
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests.tree import PUBLIC_MODE, SCRIPT_MODE, AssetTree


def render_infrastructure(inputs: Inputs, _: AssetTree) -> AssetTree:
    cluster, tree = inputs.cluster, AssetTree()
    tree.add(places.HAPROXY_BOOTSTRAP, haproxy_bootstrap(cluster), PUBLIC_MODE)
    tree.add(places.HAPROXY_FINAL, haproxy_final(cluster), PUBLIC_MODE)
    tree.add(places.SERVER_CA, inputs.certificates.bundle(Bundle.SERVER_CA), PUBLIC_MODE)
    if cluster.is_openshift:
        tree.add(places.MACHINE_CONFIG_CA, inputs.certificates["root-ca"].certificate, PUBLIC_MODE)
    tree.add(places.COREFILE, corefile(cluster), PUBLIC_MODE)
    tree.add(places.ZONE, cluster_zone(cluster), PUBLIC_MODE)
    tree.add(places.REVERSE_ZONE, reverse_zone(cluster), PUBLIC_MODE)
    tree.add(places.HOST_PLAN, plan_json(cluster), PUBLIC_MODE)
    libvirt = places.libvirt_of(cluster)
    if libvirt is not None:
        _add_libvirt(tree, cluster, libvirt)
    return tree


def _add_libvirt(tree: AssetTree, cluster: Cluster, libvirt: Libvirt) -> None:
    tree.add(places.HOST_SCRIPT, plan_script(cluster, libvirt), SCRIPT_MODE)
    tree.add(places.NETWORK, network_xml(cluster, libvirt), PUBLIC_MODE)
    for node in cluster.nodes:
        tree.add(places.domain_file(node), domain_xml(cluster, libvirt, node), PUBLIC_MODE)
