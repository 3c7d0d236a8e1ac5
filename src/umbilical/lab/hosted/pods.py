"""The pods of a hosted control plane for standalone kubelets: what `umbilical hosted render` writes, as static pods.

A standalone kubelet has no API, so Secrets and ConfigMaps are directories of the node. The management network has no
pod network, so pods use that of their node.
"""

import dataclasses
import json
import posixpath
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.render import NODE, render
from umbilical.hosted.objects.sidecars import sidecar_patches
from umbilical.hosted.objects.spec import KubeApiserver, Workload
from umbilical.lab.hosted import parts
from umbilical.lab.hosted.parts import HostedParts, Object
from umbilical.lab.hosted.topology import plan_hosted
from umbilical.lab.images import SHELL
from umbilical.lab.kubernetes_testbed import API_PORT
from umbilical.lab.runner import MANIFESTS
from umbilical.lab.topology import Topology
from umbilical.manifests.tree import AssetTree

POD_NODE: Final = "management-0"
"""Node of the control plane's agent, the component with both proxies, and the aggregated API."""
COMPONENT: Final = "oauth-openshift"
"""The one of HyperShift's components that has both proxies."""
AGENT_POD: Final = "control-plane-agent"
FOLDER: Final = "/etc/hosted"
# What only an API server, a scheduler or a pod network could provide.
_OF_AN_API: Final = frozenset(
    {"serviceAccountName", "automountServiceAccountToken", "priorityClassName", "affinity", "tolerations"}
)


def topology() -> Topology:
    openings = {API_PORT: ("bootstrap",), names.AGENT_PORT: ("bootstrap",)}
    return plan_hosted(management=1, workers=2, openings=openings)


def make_parts(lab: Topology, now: datetime, image: str) -> HostedParts:
    """Make the parts of a control plane with one server, in the pod of kube-apiserver."""
    made = parts.make_parts(lab, now, image, POD_NODE)
    kube_apiserver = KubeApiserver(
        workload=Workload.STATIC_POD, manifest="kube-apiserver.yaml", labels={"component": "kube-apiserver"}
    )
    spec = made.spec.replace(replicas=1, components=(COMPONENT,), kube_apiserver=kube_apiserver)
    return dataclasses.replace(made, spec=spec)


def kube_apiserver_files(made: HostedParts, manifest: bytes) -> AssetTree:
    """Return what the documentation says to copy to the node: kube-apiserver's pod with the server, and its files."""
    tree = AssetTree()
    for asset in render(made.spec, made.pki, manifest):
        if asset.path.startswith(f"{NODE}/"):
            tree.add(asset.path.removeprefix(NODE), asset.content, asset.mode)
    return tree


def control_plane_agent(made: HostedParts) -> AssetTree:
    deployment = parts.find(made.management_objects, "Deployment", names.AGENT)
    return static_pod(AGENT_POD, deployment, made.management_objects)


def component() -> dict[str, Any]:
    """Return a component's Deployment as a user has it. It has a shell in place of a program that calls endpoints."""
    labels = {"app": COMPONENT}
    container = {"name": COMPONENT, "image": SHELL, "command": ["sleep", "infinity"]}
    pod = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": COMPONENT},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def component_patch(made: HostedParts) -> str:
    return json.dumps(sidecar_patches(made.spec)[COMPONENT])


def static_pod(name: str, deployment: Object, objects: Sequence[Object]) -> AssetTree:
    """Return a Deployment's pod for a standalone kubelet, with its volumes as files; the manifest is last."""
    tree, pod = AssetTree(), deployment["spec"]["template"]["spec"]
    volumes = []
    for volume in pod.get("volumes", []):
        folder = posixpath.join(FOLDER, name, volume["name"])
        files = parts.volume_files(volume, objects)
        for path, (content, mode) in files.items():
            tree.add(posixpath.join(folder, path), content, mode)
        on_disk = {"name": volume["name"], "hostPath": {"path": folder, "type": "Directory"}}
        volumes.append(on_disk if files else volume)
    spec = {key: value for key, value in pod.items() if key not in _OF_AN_API}
    tree.add_yaml(
        posixpath.join(MANIFESTS, f"{name}.yaml"),
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {**spec, "hostNetwork": True, "volumes": volumes},
        },
    )
    return tree
