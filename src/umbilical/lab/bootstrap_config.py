"""A bootstrap.ign for a lab's cluster, with the paths, modes and formats of the installer's.

Unlike a real one it already contains the control plane's static pods, which the release payload renders on a real
node; `release_payload` reads them.
"""

import json
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from umbilical.ignition.data_url import format_data_url
from umbilical.lab.bootkube_script import (
    BOOTKUBE_UNIT,
    CLUSTER_GATHER,
    KUBELET_UNIT,
    RELEASE_IMAGE,
    SERVICE_RECORD,
    VERIFY_URLS,
    bootkube_script,
)
from umbilical.lab.topology import IpNetwork, Topology
from umbilical.manifests.tree import AssetTree

STATIC_PODS: Final = "/etc/kubernetes/manifests/"
PAYLOAD: Final = "/opt/openshift/lab-payload"
"""Static pods by component, in place of what the payload's operators render."""
IMAGES_FILE: Final = "/opt/openshift/lab-payload/images.json"
"""Name in the release payload -> image."""
PROGRAM_MODE: Final = 0o555
SECRET_MODE: Final = 0o600
PUBLIC_MODE: Final = 0o644


@dataclass(frozen=True)
class Kubeconfigs:
    """The kubeconfig files of the script and of cluster-bootstrap."""

    loopback: bytes
    """For the API server on this machine."""
    internal: bytes
    """For api-int: first the bootstrap node's API server, later a master's."""


def bootstrap_config(
    topology: Topology, control_plane: AssetTree, kubeconfigs: Kubeconfigs, images: Mapping[str, str]
) -> bytes:
    """Write the config of a lab's bootstrap node.

    `control_plane` has the node's files without a tunnel; `images` maps names in the payload to images.
    """
    payload = [*_control_plane(control_plane), _entry(IMAGES_FILE, json.dumps(images).encode(), SECRET_MODE)]
    files = [*_scripts(), *_cluster(topology), *payload, *_access(kubeconfigs)]
    value = {
        "ignition": {"version": "3.2.0"},
        "storage": {"files": files},
        "systemd": {
            "units": [
                {"contents": BOOTKUBE_UNIT, "name": "bootkube.service"},
                {"contents": KUBELET_UNIT, "enabled": True, "name": "kubelet.service"},
            ]
        },
    }
    return json.dumps(value, separators=(",", ":")).encode()


def _entry(path: str, content: bytes, mode: int) -> dict[str, Any]:
    contents = {"source": format_data_url(content)}
    return {"overwrite": True, "path": path, "user": {"name": "root"}, "contents": contents, "mode": mode}


def _texts(folder: str, texts: Mapping[str, str], mode: int) -> list[dict[str, Any]]:
    return [_entry(posixpath.join(folder, name), text.encode(), mode) for name, text in texts.items()]


def _scripts() -> list[dict[str, Any]]:
    texts = {
        "bootkube.sh": bootkube_script(),
        "bootstrap-cluster-gather.sh": CLUSTER_GATHER,
        "bootstrap-service-record.sh": SERVICE_RECORD,
        "bootstrap-verify-api-server-urls.sh": VERIFY_URLS,
        "release-image.sh": RELEASE_IMAGE,
    }
    return _texts("/usr/local/bin", texts, PROGRAM_MODE)


def _cluster(topology: Topology) -> list[dict[str, Any]]:
    """Cluster manifests from which a patch reads the machine network and the IP family."""
    config = json.dumps(_install_config(topology), indent=2)
    cluster_config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cluster-config-v1", "namespace": "kube-system"},
        "data": {"install-config": config},
    }
    note = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-note", "namespace": "kube-system"}}
    manifests = _texts("/opt/openshift/manifests", {"cluster-config.yaml": _yaml(cluster_config)}, PUBLIC_MODE)
    return manifests + _texts("/opt/openshift/openshift", {"99_cluster-note.yaml": _yaml(note)}, PUBLIC_MODE)


def _install_config(topology: Topology) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "metadata": {"name": "lab"},
        "networking": {
            "clusterNetwork": [{"cidr": cidr} for cidr in _cidrs(topology.pod_networks)],
            "machineNetwork": [{"cidr": cidr} for cidr in _cidrs(topology.machine_networks)],
            "serviceNetwork": _cidrs(topology.service_networks),
        },
        "platform": {"none": {}},
    }


def _cidrs(networks: Iterable[IpNetwork]) -> list[str]:
    return [str(network) for network in networks]


def _control_plane(tree: AssetTree) -> list[dict[str, Any]]:
    return [_entry(_place(asset.path), asset.content, asset.mode) for asset in tree]


def _place(path: str) -> str:
    """Path of static pods outside the manifests directory: the script installs each one later."""
    return posixpath.join(PAYLOAD, posixpath.basename(path)) if path.startswith(STATIC_PODS) else path


def _access(kubeconfigs: Kubeconfigs) -> list[dict[str, Any]]:
    return [
        _entry("/opt/openshift/auth/kubeconfig-loopback", kubeconfigs.loopback, SECRET_MODE),
        _entry("/opt/openshift/auth/kubeconfig", kubeconfigs.internal, SECRET_MODE),
    ]


def _yaml(value: dict[str, Any]) -> str:
    """JSON is valid YAML for the installer's tools."""
    return json.dumps(value, indent=2) + "\n"
