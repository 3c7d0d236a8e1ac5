"""The files of a node with a control plane, and of one with a kubelet."""

import base64
import ipaddress

import pytest
import yaml
from tests.support.control_plane_specs import control_plane_set, control_plane_spec

from umbilical.assets.certificates import Certificates
from umbilical.assets.control_plane import (
    ADMIN_KUBECONFIG,
    KUBELET_KUBECONFIG,
    kubelet_node_assets,
    render_control_plane,
)
from umbilical.assets.manifests.kube_apiserver import EGRESS_PATH
from umbilical.assets.render import KUBE_APISERVER_POD, render_kubernetes
from umbilical.assets.spec import Shape, for_shape
from umbilical.assets.tree import AssetTree
from umbilical.pki.control_plane_set import ControlPlaneSet, NodeNames

SPEC = control_plane_spec()
MANIFESTS = "/etc/kubernetes/manifests/"


@pytest.fixture(scope="module")
def certificates() -> ControlPlaneSet:
    return control_plane_set(SPEC, NodeNames("worker-0", ("10.90.0.21",)))


def _manifests(tree: AssetTree) -> list[str]:
    return [asset.path.removeprefix(MANIFESTS) for asset in tree if asset.path.startswith(MANIFESTS)]


def test_a_bootstrap_node_gets_all_four_and_their_kubeconfigs(certificates: ControlPlaneSet) -> None:
    tree = render_control_plane(SPEC, certificates)
    assert _manifests(tree) == [
        "etcd.yaml",
        "kube-apiserver.yaml",
        "kube-controller-manager.yaml",
        "kube-scheduler.yaml",
    ]
    assert [asset.path for asset in tree if asset.path.endswith(".kubeconfig")] == [
        "/etc/kubernetes/admin.kubeconfig",
        "/etc/kubernetes/controller-manager.kubeconfig",
        "/etc/kubernetes/scheduler.kubeconfig",
    ]


def test_manifests_come_last_so_that_nothing_starts_without_its_files(certificates: ControlPlaneSet) -> None:
    paths = [asset.path for asset in render_control_plane(SPEC, certificates)]
    assert paths == sorted(paths, key=lambda path: path.startswith(MANIFESTS))


def test_a_master_without_etcd_gets_no_key_that_it_does_not_need(certificates: ControlPlaneSet) -> None:
    spec = control_plane_spec(has_etcd=False, has_controllers=False, etcd_urls=("https://10.90.0.1:2379",))
    tree = render_control_plane(spec, certificates)
    assert _manifests(tree) == ["kube-apiserver.yaml"]
    assert "/etc/kubernetes/pki/etcd/ca.crt" in tree
    for absent in ("etcd/server.key", "ca.key"):
        assert f"/etc/kubernetes/pki/{absent}" not in tree
    assert ADMIN_KUBECONFIG in tree


def test_every_file_that_a_flag_names_is_in_the_tree(certificates: ControlPlaneSet) -> None:
    tree = render_control_plane(SPEC, certificates)
    for name in _manifests(tree):
        container = yaml.safe_load(tree[MANIFESTS + name].content)["spec"]["containers"][0]
        values = [flag.partition("=")[2] for flag in container["args"]]
        named = [value for value in values if value.startswith("/etc/")]
        assert named
        for path in named:
            assert path in tree
            assert any(path.startswith(mount["mountPath"]) for mount in container["volumeMounts"])


def test_keys_and_kubeconfigs_are_secret_and_certificates_are_not(certificates: ControlPlaneSet) -> None:
    for asset in render_control_plane(SPEC, certificates):
        assert asset.mode == (0o644 if asset.path.endswith((".crt", ".pub")) else 0o600), asset.path


def test_the_kubeconfigs_ask_the_kube_apiserver_beside_them(certificates: ControlPlaneSet) -> None:
    tree = render_control_plane(SPEC, certificates)
    for name in ("admin", "controller-manager", "scheduler"):
        content = yaml.safe_load(tree[f"/etc/kubernetes/{name}.kubeconfig"].content)
        assert content["clusters"][0]["cluster"]["server"] == "https://localhost:6443"
        shown = base64.b64decode(content["users"][0]["user"]["client-certificate-data"])
        assert shown == certificates[name].certificate


def test_a_kubelet_gets_its_own_pair_and_asks_where_it_is_told(certificates: ControlPlaneSet) -> None:
    tree = kubelet_node_assets("worker-0", SPEC.api_url, certificates)
    assert [asset.path for asset in tree] == [
        "/etc/kubernetes/pki/ca.crt",
        "/etc/kubernetes/pki/kubelet.crt",
        "/etc/kubernetes/pki/kubelet.key",
        KUBELET_KUBECONFIG,
    ]
    content = yaml.safe_load(tree[KUBELET_KUBECONFIG].content)
    assert content["clusters"][0]["cluster"]["server"] == "https://10.90.0.1:6443"
    assert content["current-context"] == "system:node:worker-0"


def test_the_tunnel_is_added_to_it_as_to_any_kube_apiserver(certificates: ControlPlaneSet) -> None:
    plain = render_control_plane(SPEC, certificates)[KUBE_APISERVER_POD].content
    tunnel = for_shape(Shape.KUBERNETES, image="localhost/umbilical:lab", node_ip=ipaddress.ip_address("10.90.0.1"))
    pair = certificates["admin"]
    tree = render_kubernetes(tunnel, plain, Certificates(pair.certificate, pair, pair))
    before, after = (yaml.safe_load(content)["spec"] for content in (plain, tree[KUBE_APISERVER_POD].content))
    added = after["containers"][0]["args"][len(before["containers"][0]["args"]) :]
    assert added == [f"--egress-selector-config-file={EGRESS_PATH}"]
    assert [volume["name"] for volume in after["volumes"]] == ["pki", "konnectivity-egress", "konnectivity-socket"]
