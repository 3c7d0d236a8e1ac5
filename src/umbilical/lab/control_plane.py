"""Render the files of a node from a spec and certificates: for a control plane, or for a kubelet."""

import posixpath
from collections.abc import Iterable
from typing import Final

from umbilical.bootstrap.render.render import KUBE_APISERVER_POD
from umbilical.manifests import control_plane_pods
from umbilical.manifests.control_plane_pods import controller_manager_pod, etcd_pod, kube_apiserver_pod, scheduler_pod
from umbilical.manifests.control_plane_spec import KUBECONFIG_DIRECTORY, PKI_DIRECTORY, ControlPlaneSpec
from umbilical.manifests.objects import kubeconfig
from umbilical.manifests.tree import PUBLIC_MODE, SECRET_MODE, AssetTree
from umbilical.pki.control_plane_set import Consumer, ControlPlaneSet, PkiFile

ADMIN_KUBECONFIG: Final = posixpath.join(KUBECONFIG_DIRECTORY, "admin.kubeconfig")
KUBELET_KUBECONFIG: Final = posixpath.join(KUBECONFIG_DIRECTORY, "kubelet.kubeconfig")
_AUTHORITY: Final = "kubernetes-ca"
_MANIFESTS: Final = posixpath.dirname(KUBE_APISERVER_POD)


def render_control_plane(spec: ControlPlaneSpec, certificates: ControlPlaneSet) -> AssetTree:
    """Render the files of a control plane. Manifests are last, because a running kubelet starts them at once."""
    tree = AssetTree()
    _add_pki(tree, certificates.files(*_consumers(spec)))
    _add_kubeconfig(tree, ADMIN_KUBECONFIG, "admin", spec.local_url, certificates, "admin")
    if spec.has_controllers:
        for path, user in (
            (control_plane_pods.CONTROLLER_MANAGER_KUBECONFIG, "controller-manager"),
            (control_plane_pods.SCHEDULER_KUBECONFIG, "scheduler"),
        ):
            _add_kubeconfig(tree, path, user, spec.local_url, certificates, user)
    if spec.has_etcd:
        tree.add_yaml(f"{_MANIFESTS}/etcd.yaml", etcd_pod(spec))
    tree.add_yaml(KUBE_APISERVER_POD, kube_apiserver_pod(spec))
    if spec.has_controllers:
        tree.add_yaml(f"{_MANIFESTS}/{control_plane_pods.CONTROLLER_MANAGER}.yaml", controller_manager_pod(spec))
        tree.add_yaml(f"{_MANIFESTS}/{control_plane_pods.SCHEDULER}.yaml", scheduler_pod(spec))
    return tree


def kubelet_node_assets(node: str, server_url: str, certificates: ControlPlaneSet) -> AssetTree:
    """Render what a kubelet needs to join and to serve: certificate, key, CA and kubeconfig."""
    tree = AssetTree()
    _add_pki(tree, certificates.files(Consumer.KUBELET, node=node))
    user = f"system:node:{node}"
    _add_kubeconfig(tree, KUBELET_KUBECONFIG, user, server_url, certificates, f"kubelet-client:{node}")
    return tree


def _consumers(spec: ControlPlaneSpec) -> list[Consumer]:
    consumers = [Consumer.KUBE_APISERVER]
    if spec.has_etcd:
        consumers.append(Consumer.ETCD)
    if spec.has_controllers:
        consumers += [Consumer.CONTROLLER_MANAGER, Consumer.SCHEDULER]
    return consumers


def _add_pki(tree: AssetTree, files: Iterable[PkiFile]) -> None:
    for file in files:
        mode = SECRET_MODE if file.is_secret else PUBLIC_MODE
        tree.add(posixpath.join(PKI_DIRECTORY, file.path), file.content, mode)


def _add_kubeconfig(
    tree: AssetTree, path: str, user: str, server_url: str, certificates: ControlPlaneSet, pair_id: str
) -> None:
    authority = certificates[_AUTHORITY].certificate
    tree.add_yaml(path, kubeconfig(user, server_url, authority, certificates[pair_id]))
