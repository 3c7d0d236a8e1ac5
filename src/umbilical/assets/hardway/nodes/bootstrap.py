"""The bootstrap node: a kubelet that stands alone, the first control plane as static pods, and the script beside it."""

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.inputs import Inputs
from umbilical.assets.hardway.nodes import bootkube, container_runtime, kubelet, network
from umbilical.assets.hardway.nodes.parts import Parts
from umbilical.assets.hardway.nodes.pod_files import add_pods, add_secret
from umbilical.assets.manifests.egress import egress_selector
from umbilical.assets.names import EGRESS_FILE
from umbilical.assets.spec import Shape, for_shape
from umbilical.assets.tree import PUBLIC_MODE, AssetTree, yaml_bytes
from umbilical.pki.hardway_set import Bundle


def bootstrap_parts(inputs: Inputs, made: AssetTree) -> Parts:
    node = inputs.cluster.bootstrap
    parts = Parts(ssh_keys=inputs.cluster.access.ssh_keys)
    network.add_network(parts, inputs.cluster, node)
    kubelet.add_kubelet(parts, inputs.cluster, node)
    if inputs.cluster.is_openshift:
        container_runtime.add_pause_image(parts, inputs)
        container_runtime.add_pull_secret(parts, inputs)
    bootkube.add_bootkube(parts, inputs, made)
    # For the script, and for whoever logs in to look.
    add_secret(parts, node, made, layout.POD_SECRETS, f"{Bundle.SERVER_CA.value}.crt")
    add_secret(parts, node, made, layout.NODE_KUBECONFIGS, "localhost.kubeconfig")
    add_pods(parts, node, made)
    parts.make_directories({layout.NODE_CONFIGS: 0o755, layout.ETCD_DATA: 0o700})
    if inputs.has_tunnel:
        egress = egress_selector(for_shape(Shape.OPENSHIFT, node_ip=node.address))
        parts.files.add(f"{layout.NODE_CONFIGS}/{EGRESS_FILE}", yaml_bytes(egress), PUBLIC_MODE)
    return parts
