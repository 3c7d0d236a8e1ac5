"""Nodes of test clusters, rendered with everything before them: once per shape, since nothing changes a tree."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.support import hardway
from tests.support.hardway_lint import Subject

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.certificates import render_certificates
from umbilical.hardway.artifacts.inputs import Inputs, NodeBase
from umbilical.hardway.artifacts.kubeconfigs import render_kubeconfigs
from umbilical.hardway.artifacts.nodes.render import render_nodes
from umbilical.hardway.artifacts.static_pods.pods import render_static_pods
from umbilical.hardway.config.cluster import ClusterProfile, NodeRole, Switch
from umbilical.ignition.config import Config, read_config
from umbilical.ignition.data_url import format_data_url
from umbilical.ignition.document import IgnitionDocument
from umbilical.manifests.tree import AssetTree

SHAPES: Final = ((3, 2), (1, 0))
"""Masters and workers."""
BASE_SCRIPT: Final = "/usr/local/bin/configure-ovs.sh"


@cache
def inputs(profile: ClusterProfile, masters: int = 3, workers: int = 2, *, is_based: bool = False) -> Inputs:
    """Everything is switched on. `is_based`: on rendered MachineConfigs, not on the built-in base."""
    cluster = hardway.cluster(profile, masters, workers, kube_proxy=Switch.ON)
    bases = {role: machine_config_base(role) for role in (NodeRole.MASTER, NodeRole.WORKER)} if is_based else {}
    certs = hardway.hardway_set(profile, masters)
    return Inputs(cluster, certs, hardway.payload(profile), hardway.identity(), hardway.PULL_SECRET, bases)


def earlier(given: Inputs) -> AssetTree:
    """What the recipes before the nodes make."""
    made = AssetTree()
    for render in (render_certificates, render_kubeconfigs, render_static_pods):
        for asset in render(given, made):
            made.add(asset.path, asset.content, asset.mode)
    return made


@cache
def nodes(profile: ClusterProfile, masters: int = 3, workers: int = 2, *, is_based: bool = False) -> AssetTree:
    given = inputs(profile, masters, workers, is_based=is_based)
    return render_nodes(given, earlier(given))


def node_config(
    node_id: str, profile: ClusterProfile, masters: int = 3, workers: int = 2, *, is_based: bool = False
) -> Config:
    tree = nodes(profile, masters, workers, is_based=is_based)
    return read_config(tree[f"{layout.IGNITION}/{node_id}.ign"].content)


def content(config: Config, path: str) -> str:
    file = config.file(path)
    assert file is not None, f"{path} is not written"
    return file.text()


def _metrics_proxy() -> str:
    """The static pod that every real base brings, so that the kubelet's directory is there."""
    image = hardway.payload().images["kube-rbac-proxy"]
    container = {"name": "kube-rbac-proxy-crio", "image": image, "args": ["--secure-listen-address=:9637"]}
    metadata = {"name": "kube-rbac-proxy-crio", "namespace": "openshift-machine-config-operator"}
    spec = {"hostNetwork": True, "priorityClassName": "system-node-critical", "containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def machine_config_base(role: NodeRole) -> NodeBase:
    """A role's config of the shape that the machine-config operator renders, cut down to what merging can meet."""
    pod = hardway.payload().images["pod"]
    files = {
        "/var/lib/kubelet/config.json": (0o600, hardway.PULL_SECRET.decode()),
        "/etc/kubernetes/kubelet.conf": (0o644, _BASE_KUBELET),
        "/etc/kubernetes/apiserver-url.env": (
            0o644,
            "KUBERNETES_SERVICE_HOST='api-int.ocp4.example.com'\nKUBERNETES_SERVICE_PORT='6443'\n",
        ),
        "/etc/crio/crio.conf.d/00-default": (
            0o644,
            f'[crio.image]\n{_BASE_AUTH}pause_image = "{pod}"\npause_command = "/usr/bin/pod"\n',
        ),
        BASE_SCRIPT: (0o755, "#!/bin/bash\nexit 0\n"),
        f"{layout.NODE_MANIFESTS}/criometricsproxy.yaml": (0o644, _metrics_proxy()),
    }
    name = f"rendered-{role.value}-{'0123456789abcdef' * 2}"
    config: dict[str, Any] = {
        "ignition": {"version": "3.5.0"},
        "kernelArguments": {},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 BASE base@example"]}]},
        "storage": {
            "files": [
                {"path": path, "mode": mode, "overwrite": True, "contents": {"source": format_data_url(text.encode())}}
                for path, (mode, text) in files.items()
            ]
        },
        "systemd": {"units": [_base_kubelet(role), *_network_units()]},
    }
    machine_config = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name},
        "spec": {"config": config, "kernelArguments": ["quiet"], "osImageURL": "quay.io/os@sha256:" + "c" * 64},
    }
    return NodeBase(json.dumps(config).encode(), json.dumps(machine_config).encode(), name)


_BASE_AUTH: Final = 'global_auth_file = "/var/lib/kubelet/config.json"\n'
_BASE_KUBELET: Final = """kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  x509:
    clientCAFile: /etc/kubernetes/kubelet-ca.crt
  anonymous:
    enabled: false
staticPodPath: /etc/kubernetes/manifests
rotateCertificates: true
serverTLSBootstrap: true
"""


def _base_kubelet(role: NodeRole) -> dict[str, Any]:
    text = (
        "[Unit]\nDescription=Kubernetes Kubelet\n[Service]\nType=notify\nEnvironmentFile=/etc/os-release\n"
        "EnvironmentFile=-/etc/kubernetes/kubelet-workaround\n"
        "ExecStart=/usr/bin/kubelet \\\n  --config=/etc/kubernetes/kubelet.conf \\\n"
        "  --bootstrap-kubeconfig=/etc/kubernetes/kubeconfig \\\n  --kubeconfig=/var/lib/kubelet/kubeconfig \\\n"
        f"  --node-labels=node-role.kubernetes.io/{role.value},node.openshift.io/os_id=${{ID}}\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    dropins = [{"name": "10-mco-default-env.conf", "contents": "[Service]\nEnvironment=A=b\n"}]
    return {"name": "kubelet.service", "enabled": True, "contents": text, "dropins": dropins}


def _network_units() -> list[dict[str, Any]]:
    commands = {
        "ovs-configuration.service": f"{BASE_SCRIPT} OVNKubernetes",
        "nodeip-configuration.service": "/usr/bin/podman run --rm --net=host node-ip set",
    }
    text = "[Service]\nType=oneshot\nExecStart={}\n[Install]\nWantedBy=network-online.target\n"
    return [{"name": name, "enabled": True, "contents": text.format(line)} for name, line in commands.items()]


def edit_config(node_id: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Subject], object]:
    """A change of a node's Ignition as a value."""

    def sample(seen: Subject) -> None:
        path = layout.ignition(seen.cluster.node(node_id))
        value = IgnitionDocument(seen.assets[path].content).config.value
        change(value)
        seen.write(path, json.dumps(value).encode())

    return sample


GOLDEN: Final = Path(__file__).parent.parent / "hardway/artifacts/nodes/golden"
_OF_OTHERS: Final = ("#!/", "BEGIN", "certificate-authority-data", "kind: Pod", "kind: EgressSelector")


def golden(profile: ClusterProfile) -> str:
    """What the configs of a cluster's nodes hold, decoded: everything of ours as lines, of keys and pods the names."""
    told = {node: _told(node_config(node, profile)) for node in ("bootstrap", "master-0", "worker-0")}
    return json.dumps(told, indent=2) + "\n"


def golden_file(profile: ClusterProfile) -> Path:
    return GOLDEN / f"{profile.value}.json"


def _told(config: Config) -> dict[str, Any]:
    return {
        "version": config.version,
        "directories": {entry["path"]: f"0{entry['mode']:o}" for entry in config.value["storage"]["directories"]},
        "files": {f"{file.path} 0{file.mode or 0:o}": _lines(file.text()) for file in config.files},
        "units": {f"{unit.name} {unit.enabled}": _lines(unit.contents or "") for unit in config.units},
    }


def _lines(text: str) -> list[str] | str:
    """Keys are drawn at random, pods and scripts are tested by themselves, one file holds the others again."""
    if any(mark in text for mark in _OF_OTHERS):
        return "..."
    return text.splitlines() if "data:text/plain" not in text else "..."


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for one in ClusterProfile:
        golden_file(one).write_text(golden(one))
