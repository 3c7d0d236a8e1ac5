"""Masters and workers: a role's base, and what is the node's own."""

from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs, NodeBase
from umbilical.hardway.artifacts.nodes import container_runtime, network
from umbilical.hardway.artifacts.nodes.first_boot import add_first_boot
from umbilical.hardway.artifacts.nodes.parts import Parts
from umbilical.hardway.artifacts.nodes.pod_files import add_artifact, add_pods
from umbilical.hardway.config.cluster import Node, Role
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests.tree import AssetTree

KUBELET_KUBECONFIG: Final = "kubelet-bootstrap"


def member_parts(inputs: Inputs, node: Node, base: NodeBase, made: AssetTree) -> Parts:
    cluster = inputs.cluster
    parts = Parts(ssh_keys=cluster.access.ssh_keys)
    network.add_network(parts, cluster, node)
    add_artifact(parts, layout.KUBELET_CLIENT_CA, layout.bundle(Bundle.CLIENT_CA.value), made)
    add_artifact(parts, layout.BOOTSTRAP_KUBECONFIG, layout.kubeconfig(KUBELET_KUBECONFIG), made)
    add_pods(parts, inputs, node, made)
    if cluster.is_openshift:
        container_runtime.add_pull_secret(parts, inputs)
        add_first_boot(parts, base)
    else:
        container_runtime.add_pod_network(parts, node)
        if node.role is Role.MASTER:
            parts.directories.update({layout.ETCD_DATA: 0o700})
    return parts
