"""Renders the Ignition config of every node from the inputs and earlier artifacts.

The bootstrap node gets a standalone kubelet and the first control plane; other nodes are merged into the base of their
role. The files that static pods need are found in the pods' manifests.
"""

import hashlib
import json
import posixpath
import re
from collections.abc import Iterator
from typing import Any, Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs, NodeBase
from umbilical.hardway.artifacts.nodes import bootkube, kubelet, machine
from umbilical.hardway.artifacts.nodes.machine import add_first_boot
from umbilical.hardway.artifacts.nodes.merging import NodeParts, format_config, merge
from umbilical.hardway.artifacts.static_pods.placement import PodPlacement, secret_artifact
from umbilical.hardway.artifacts.static_pods.pods import files_of
from umbilical.hardway.config.cluster import API_PORT, Cluster, ClusterNode, NodeRole
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests.tree import PUBLIC_MODE, SECRET_MODE, AssetTree

VERSION: Final = "3.4.0"
"""Ignition version that the machine-config operator of OpenShift 4.18 renders."""
API_SERVER_ENV: Final = "/etc/kubernetes/apiserver-url.env"


def base_of(inputs: Inputs, node: ClusterNode) -> NodeBase:
    """Return the given base of the node's role, else the built-in one."""
    return inputs.bases.get(node.role) or builtin_base(inputs, node)


def empty_config() -> dict[str, Any]:
    return {"ignition": {"version": VERSION}}


def builtin_base(inputs: Inputs, node: ClusterNode) -> NodeBase:
    """Return the built-in base; in OpenShift it depends only on the role, and has the name of a MachineConfig."""
    config = merge(empty_config(), _parts(inputs, node))
    digest = hashlib.sha256(format_config(config)).hexdigest()[:32]
    name = f"rendered-{node.role.value}-{digest}"
    machine_config = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name},
        "spec": {"config": config},
    }
    return NodeBase(format_config(config), json.dumps(machine_config, separators=(",", ":")).encode(), name)


def _parts(inputs: Inputs, node: ClusterNode) -> NodeParts:
    parts = NodeParts()
    placement = PodPlacement(inputs, node)
    kubelet.add_kubelet(parts, placement)
    if inputs.cluster.is_openshift:
        parts.files.add(API_SERVER_ENV, api_server_env(inputs.cluster), PUBLIC_MODE)
        machine.add_pause_image(parts, placement)
    return parts


def api_server_env(cluster: Cluster) -> bytes:
    """Write the API's address for pods that run before Services work; the network operator exits without it."""
    return f"KUBERNETES_SERVICE_HOST='{cluster.internal_api_name}'\nKUBERNETES_SERVICE_PORT='{API_PORT}'\n".encode()


_SECRET: Final = re.compile(re.escape(layout.POD_SECRETS) + r"/([A-Za-z0-9.-]+)")
_KUBECONFIG: Final = re.compile(re.escape(layout.NODE_KUBECONFIGS) + r"/([a-z-]+)\.kubeconfig")
_KUBELET_KUBECONFIG: Final = "kubelet-bootstrap"


def files_needed(inputs: Inputs, node: ClusterNode) -> dict[str, str]:
    """Return path on the node -> path of the artifact, for the pods, their configuration files, keys and kubeconfigs.

    Files that the node makes itself (the tunnel's certificates) are not included.
    """
    placement = PodPlacement(inputs, node)
    needed: dict[str, str] = {}
    for file in files_of(inputs, node):
        needed[file.on_node()] = file.artifact(node)
        for text in _texts(file.make(placement)):
            needed.update(_mentioned(placement, text))
    return dict(sorted(needed.items()))


def _mentioned(placement: PodPlacement, text: str) -> Iterator[tuple[str, str]]:
    for name in _SECRET.findall(text):
        yield posixpath.join(placement.secrets_on_host, name), secret_artifact(name)
    for name in _KUBECONFIG.findall(text):
        yield posixpath.join(layout.NODE_KUBECONFIGS, f"{name}.kubeconfig"), layout.kubeconfig(name)
    if text == layout.BOOTSTRAP_KUBECONFIG:
        yield text, layout.kubeconfig(_KUBELET_KUBECONFIG)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


_DIRECTORY_MODES: Final = {
    layout.NODE_MANIFESTS: 0o755,
    layout.NODE_LATE_MANIFESTS: 0o755,
    layout.NODE_CONFIGS: 0o755,
    layout.NODE_SECRETS: 0o700,
    layout.MASTER_SECRETS: 0o700,
    layout.NODE_KUBECONFIGS: 0o700,
}


def add_pods(parts: NodeParts, inputs: Inputs, node: ClusterNode, made: AssetTree) -> None:
    """Add the node's pods, including late ones, and the files that they refer to."""
    for path, artifact in files_needed(inputs, node).items():
        add_artifact(parts, path, artifact, made)


def add_artifact(parts: NodeParts, path: str, artifact: str, made: AssetTree) -> None:
    """Add an artifact; several pods may need the same one."""
    if path not in parts.files:
        parts.files.add(path, made[artifact].content, made[artifact].mode)
    directory = posixpath.dirname(path)
    if directory in _DIRECTORY_MODES:
        parts.directories.update({directory: _DIRECTORY_MODES[directory]})


LOCAL_KUBECONFIG: Final = "localhost"


def bootstrap_parts(inputs: Inputs, made: AssetTree) -> NodeParts:
    node = inputs.cluster.bootstrap
    placement = PodPlacement(inputs, node)
    parts = NodeParts(ssh_keys=inputs.cluster.access.ssh_keys)
    machine.add_network(parts, inputs.cluster, node)
    kubelet.add_kubelet(parts, placement)
    if inputs.cluster.is_openshift:
        machine.add_pause_image(parts, placement)
        machine.add_pull_secret(parts, inputs)
    bootkube.add_bootkube(parts, inputs)
    # For bootkube.sh, and for administrators who log in.
    add_artifact(parts, bootkube.SERVER_CA, layout.bundle(Bundle.SERVER_CA.value), made)
    add_artifact(parts, bootkube.KUBECONFIG, layout.kubeconfig(LOCAL_KUBECONFIG), made)
    add_pods(parts, inputs, node, made)
    parts.directories.update({layout.NODE_CONFIGS: 0o755, layout.ETCD_DATA: 0o700})
    return parts


KUBELET_KUBECONFIG: Final = "kubelet-bootstrap"


def member_parts(inputs: Inputs, node: ClusterNode, base: NodeBase, made: AssetTree) -> NodeParts:
    cluster = inputs.cluster
    parts = NodeParts(ssh_keys=cluster.access.ssh_keys)
    machine.add_network(parts, cluster, node)
    add_artifact(parts, layout.KUBELET_CLIENT_CA, layout.bundle(Bundle.CLIENT_CA.value), made)
    add_artifact(parts, layout.BOOTSTRAP_KUBECONFIG, layout.kubeconfig(KUBELET_KUBECONFIG), made)
    add_pods(parts, inputs, node, made)
    if cluster.is_openshift:
        machine.add_pull_secret(parts, inputs)
        add_first_boot(parts, base)
    else:
        machine.add_pod_network(parts, node)
        if node.role is NodeRole.MASTER:
            parts.directories.update({layout.ETCD_DATA: 0o700})
    return parts


def render_nodes(inputs: Inputs, made: AssetTree) -> AssetTree:
    """Render <node id>.ign for every node. Each contains keys."""
    tree = AssetTree()
    for node in inputs.cluster.nodes:
        tree.add(layout.ignition(node), node_config(inputs, node, made), SECRET_MODE)
    return tree


def node_config(inputs: Inputs, node: ClusterNode, made: AssetTree) -> bytes:
    if node.role is NodeRole.BOOTSTRAP:
        return format_config(merge(empty_config(), bootstrap_parts(inputs, made)))
    base = base_of(inputs, node)
    return format_config(merge(json.loads(base.config), member_parts(inputs, node, base, made)))
