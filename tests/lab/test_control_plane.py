"""The files of a node with a control plane, and of one with a kubelet."""

import base64
import ipaddress
import json
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.control_plane_specs import DUAL, IPV4, IPV6, control_plane_set, control_plane_spec

from umbilical.bootstrap.certificates import Certificates
from umbilical.bootstrap.render.kube_apiserver import EGRESS_PATH
from umbilical.bootstrap.render.render import KUBE_APISERVER_POD, render_kubernetes
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.cluster.credentials import load
from umbilical.fault import RenderError
from umbilical.lab.control_plane import ADMIN_KUBECONFIG, KUBELET_KUBECONFIG, kubelet_node_assets, render_control_plane
from umbilical.manifests.control_plane_spec import ControlPlaneImages, key_path, public_path, row, url
from umbilical.manifests.objects import bridge_conflist, kubeconfig
from umbilical.manifests.tree import AssetTree, yaml_bytes
from umbilical.pki.control_plane_set import ControlPlaneSet, NodeNames
from umbilical.pki.pem import KeyPair

SPEC = control_plane_spec()
MANIFESTS = "/etc/kubernetes/manifests/"


@pytest.fixture(scope="module")
def certificates() -> ControlPlaneSet:
    return control_plane_set(SPEC, NodeNames("worker-0", ("10.90.0.21",)))


@pytest.fixture(scope="module")
def tree(certificates: ControlPlaneSet) -> AssetTree:
    return render_control_plane(SPEC, certificates)


def _manifests(tree: AssetTree) -> list[str]:
    return [asset.path.removeprefix(MANIFESTS) for asset in tree if asset.path.startswith(MANIFESTS)]


def test_a_bootstrap_node_gets_all_four_after_every_other_file_so_that_nothing_starts_too_early(
    tree: AssetTree,
) -> None:
    names = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
    assert _manifests(tree) == [f"{name}.yaml" for name in names]
    paths = [asset.path for asset in tree]
    kubeconfigs = [f"/etc/kubernetes/{name}.kubeconfig" for name in ("admin", "controller-manager", "scheduler")]
    assert [path for path in paths if path.endswith(".kubeconfig")] == kubeconfigs
    assert paths == sorted(paths, key=lambda path: path.startswith(MANIFESTS))


def test_a_master_without_etcd_gets_no_key_that_it_does_not_need(certificates: ControlPlaneSet) -> None:
    spec = control_plane_spec(has_etcd=False, has_controllers=False, etcd_urls=("https://10.90.0.1:2379",))
    tree = render_control_plane(spec, certificates)
    assert _manifests(tree) == ["kube-apiserver.yaml"]
    assert "/etc/kubernetes/pki/etcd/ca.crt" in tree
    for absent in ("etcd/server.key", "ca.key"):
        assert f"/etc/kubernetes/pki/{absent}" not in tree
    assert ADMIN_KUBECONFIG in tree


def test_every_file_that_a_flag_names_is_in_the_tree(tree: AssetTree) -> None:
    for name in _manifests(tree):
        container = yaml.safe_load(tree[MANIFESTS + name].content)["spec"]["containers"][0]
        values = [flag.partition("=")[2] for flag in container["args"]]
        named = [value for value in values if value.startswith("/etc/")]
        assert named
        for path in named:
            assert path in tree
            assert any(path.startswith(mount["mountPath"]) for mount in container["volumeMounts"])


def test_keys_and_kubeconfigs_are_secret_and_certificates_are_not(tree: AssetTree) -> None:
    for asset in tree:
        assert asset.mode == (0o644 if asset.path.endswith((".crt", ".pub")) else 0o600), asset.path


def test_the_kubeconfigs_ask_the_kube_apiserver_beside_them(tree: AssetTree, certificates: ControlPlaneSet) -> None:
    for name in ("admin", "controller-manager", "scheduler"):
        content = yaml.safe_load(tree[f"/etc/kubernetes/{name}.kubeconfig"].content)
        assert content["clusters"][0]["cluster"]["server"] == "https://localhost:6443"
        shown = base64.b64decode(content["users"][0]["user"]["client-certificate-data"])
        assert shown == certificates[name].certificate


def test_a_kubelet_gets_its_own_pair_and_asks_where_it_is_told(certificates: ControlPlaneSet) -> None:
    tree = kubelet_node_assets("worker-0", SPEC.api_url, certificates)
    files = [f"/etc/kubernetes/pki/{name}" for name in ("ca.crt", "kubelet.crt", "kubelet.key")]
    assert [asset.path for asset in tree] == [*files, KUBELET_KUBECONFIG]
    content = yaml.safe_load(tree[KUBELET_KUBECONFIG].content)
    assert content["clusters"][0]["cluster"]["server"] == "https://10.90.0.1:6443"
    assert content["current-context"] == "system:node:worker-0"


def test_the_tunnel_is_added_to_it_as_to_any_kube_apiserver(tree: AssetTree, certificates: ControlPlaneSet) -> None:
    plain = tree[KUBE_APISERVER_POD].content
    tunnel = for_shape(Shape.KUBERNETES, image="localhost/umbilical:lab", node_ip=ipaddress.ip_address("10.90.0.1"))
    pair = certificates["admin"]
    tunnelled = render_kubernetes(tunnel, plain, Certificates(pair.certificate, pair, pair))[KUBE_APISERVER_POD]
    before, after = (yaml.safe_load(content)["spec"] for content in (plain, tunnelled.content))
    added = after["containers"][0]["args"][len(before["containers"][0]["args"]) :]
    assert added == [f"--egress-selector-config-file={EGRESS_PATH}"]
    assert [volume["name"] for volume in after["volumes"]] == ["pki", "konnectivity-egress", "konnectivity-socket"]


def test_images_are_named_by_their_programs() -> None:
    names = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
    assert ControlPlaneImages.tagged("localhost", "lab") == ControlPlaneImages(
        *(f"localhost/{name}:lab" for name in names)
    )


def test_addresses_fit_their_family_and_paths_come_from_the_table() -> None:
    assert url(ipaddress.ip_address("10.0.0.1"), 6443) == "https://10.0.0.1:6443"
    assert url("fd91::10", 2379) == "https://[fd91::10]:2379"
    assert control_plane_spec(IPV6).api_url == "https://[fd90::1]:6443"
    assert [control_plane_spec(family).every_address for family in (IPV4, IPV6, DUAL)] == ["0.0.0.0", "::", "::"]
    assert control_plane_spec().etcd_servers == ("https://localhost:2379",), "the etcd beside it"
    urls = ("https://10.90.0.1:2379",)
    assert control_plane_spec(has_etcd=False, etcd_urls=urls).etcd_servers == urls
    assert public_path("service-account") == "/etc/kubernetes/pki/sa.pub"
    assert key_path("etcd-client") == "/etc/kubernetes/pki/apiserver-etcd-client.key"
    assert row("front-proxy-client").common_name == "front-proxy-client"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"has_etcd": False}, "etcd_urls is empty"),
        ({"service_networks": ()}, "they are empty"),
        (
            {"pod_networks": (ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("10.2.0.0/16"))},
            "one network per IP family",
        ),
        ({"service_networks": (ipaddress.ip_network("fd93::/112"),)}, "the first service network fd93::/112"),
        ({"node_prefixes": (24, 64)}, "1 pod networks and 2 prefixes"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(RenderError, match="UMB119") as refusal:
        control_plane_spec(**changes)
    assert why in refusal.value.why


def test_a_reader_finds_server_authority_and_user(tmp_path: Path) -> None:
    path = tmp_path / "admin.kubeconfig"
    made = kubeconfig("admin", "https://[fd91::10]:6443", b"authority", KeyPair(b"certificate", b"key"))
    path.write_bytes(yaml_bytes(made))
    found = load(path)
    assert found.context_name == "admin"
    assert found.cluster.server == "https://[fd91::10]:6443"
    assert found.cluster.certificate_auth_data == base64.b64encode(b"authority").decode()
    assert found.user is not None
    assert found.user.client_cert_data == base64.b64encode(b"certificate").decode()
    assert found.user.client_key_data == base64.b64encode(b"key").decode()


def test_a_kubeconfig_names_no_file_and_its_cluster_can_have_a_name_of_its_own() -> None:
    made = kubeconfig("admin", "https://localhost:6443", b"a", KeyPair(b"b", b"c"), "localhost")
    assert "/" not in yaml_bytes(made).decode().replace("https://", "")
    assert made["clusters"][0]["name"] == made["contexts"][0]["context"]["cluster"] == "localhost"


def test_ports_of_the_host_are_a_plugin_after_the_bridge() -> None:
    written = json.loads(bridge_conflist("pods", "pods0", [ip_network("10.128.2.0/23")], with_host_ports=True))
    assert [plugin["type"] for plugin in written["plugins"]] == ["bridge", "portmap"]
    assert written["plugins"][1]["capabilities"] == {"portMappings": True}


def test_the_bridge_is_the_gateway_of_every_range() -> None:
    written = json.loads(bridge_conflist("pods", "pods0", [ip_network("10.128.2.0/23"), ip_network("fd92::/64")]))
    (bridge,) = written["plugins"]
    assert (written["name"], bridge["bridge"], bridge["isGateway"]) == ("pods", "pods0", True)
    assert bridge["ipam"]["ranges"] == [
        [{"subnet": "10.128.2.0/23", "gateway": "10.128.2.1"}],
        [{"subnet": "fd92::/64", "gateway": "fd92::1"}],
    ]
    assert bridge["ipam"]["routes"] == [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
    assert bridge["ipam"]["dataDir"] == "/var/lib/cni/networks"
    assert bridge["ipMasq"] is False, "pods keep their addresses on the way to other nodes"
