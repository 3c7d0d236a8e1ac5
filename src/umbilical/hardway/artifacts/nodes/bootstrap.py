"""The bootstrap node: a kubelet that stands alone, the first control plane as static pods, and the script beside it."""

from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.nodes import bootkube, container_runtime, kubelet, network
from umbilical.hardway.artifacts.nodes.parts import Parts
from umbilical.hardway.artifacts.nodes.pod_files import add_artifact, add_pods
from umbilical.hardway.artifacts.static_pods.seat import Seat
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests.tree import AssetTree

LOCAL_KUBECONFIG: Final = "localhost"


def bootstrap_parts(inputs: Inputs, made: AssetTree) -> Parts:
    node = inputs.cluster.bootstrap
    seat = Seat(inputs, node)
    parts = Parts(ssh_keys=inputs.cluster.access.ssh_keys)
    network.add_network(parts, inputs.cluster, node)
    kubelet.add_kubelet(parts, seat)
    if inputs.cluster.is_openshift:
        container_runtime.add_pause_image(parts, seat)
        container_runtime.add_pull_secret(parts, inputs)
    bootkube.add_bootkube(parts, inputs)
    # For the script, and for whoever logs in to look.
    add_artifact(parts, bootkube.SERVER_CA, layout.bundle(Bundle.SERVER_CA.value), made)
    add_artifact(parts, bootkube.KUBECONFIG, layout.kubeconfig(LOCAL_KUBECONFIG), made)
    add_pods(parts, inputs, node, made)
    parts.directories.update({layout.NODE_CONFIGS: 0o755, layout.ETCD_DATA: 0o700})
    return parts
