"""What a member's config is merged onto: a role's rendered MachineConfig, or what a kubelet needs at the least."""

import hashlib
import json
from typing import Any, Final

from umbilical.hardway.artifacts.inputs import Inputs, NodeBase
from umbilical.hardway.artifacts.nodes import container_runtime, kubelet
from umbilical.hardway.artifacts.nodes.merging import format_config, merge
from umbilical.hardway.artifacts.nodes.parts import Parts
from umbilical.hardway.artifacts.static_pods.seat import Seat
from umbilical.hardway.config.cluster import API_PORT, Cluster, Node
from umbilical.manifests.tree import PUBLIC_MODE

VERSION: Final = "3.4.0"
"""What the machine-config operator of OpenShift 4.18 renders."""
API_SERVER_ENV: Final = "/etc/kubernetes/apiserver-url.env"


def base_of(inputs: Inputs, node: Node) -> NodeBase:
    """Take the given base of the node's role, else the built-in one."""
    return inputs.bases.get(node.role) or builtin_base(inputs, node)


def empty_config() -> dict[str, Any]:
    return {"ignition": {"version": VERSION}}


def builtin_base(inputs: Inputs, node: Node) -> NodeBase:
    """In OpenShift it depends on the role alone, as a MachineConfig does, and is named as one would be."""
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


def _parts(inputs: Inputs, node: Node) -> Parts:
    parts = Parts()
    seat = Seat(inputs, node)
    kubelet.add_kubelet(parts, seat)
    if inputs.cluster.is_openshift:
        parts.files.add(API_SERVER_ENV, api_server_env(inputs.cluster), PUBLIC_MODE)
        container_runtime.add_pause_image(parts, seat)
    return parts


def api_server_env(cluster: Cluster) -> bytes:
    """Say where the API is to those that run before services work: the network operator ends without it."""
    return f"KUBERNETES_SERVICE_HOST='{cluster.internal_api_name}'\nKUBERNETES_SERVICE_PORT='{API_PORT}'\n".encode()
