"""Rendering a spec to the objects of both clusters, and building them with kustomize."""

import ipaddress
import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.support.hosted_certificates import hosted_set
from tests.support.hosted_specs import hosted_spec
from tests.support.hosted_workloads import as_bytes, container, deployment, static_pod

import peers
from umbilical.cli.tree_files import write_tree
from umbilical.host.processes import run
from umbilical.hosted.objects import render as kustomize
from umbilical.hosted.objects.forms import config_map_volume, metadata, secret_volume
from umbilical.hosted.objects.kube_apiserver_manifest import read_manifest
from umbilical.hosted.objects.render import Format, hosted_objects, management_objects, notes, render
from umbilical.hosted.objects.server import patched
from umbilical.hosted.objects.sidecars import access_notes
from umbilical.hosted.objects.spec import (
    AggregatedApi,
    DataPlaneProxy,
    HostedSpec,
    KubeApiserver,
    Leases,
    Monitoring,
    Publishing,
    ServerCount,
    ServerProgram,
    Strategy,
    Workload,
)
from umbilical.manifests.tree import AssetTree

STATIC = hosted_spec(kube_apiserver=KubeApiserver(workload=Workload.STATIC_POD, manifest="pod.yaml"))
CLUSTER_WIDE = {"Namespace", "ClusterRole", "ClusterRoleBinding", "APIService"}
SPECS = {
    "full": hosted_spec(),
    "upstream": hosted_spec(server=ServerProgram.UPSTREAM),
    "plain": hosted_spec(
        aggregated_apis=(), aggregated_authority="", components=(), monitoring=Monitoring(enabled=False)
    ),
    "leases": hosted_spec(server_count=ServerCount.LEASES, leases=Leases("kubeconfig")),
    "proxy": hosted_spec(proxy=DataPlaneProxy("http://user:hunter2@p:1", "http://user:hunter2@p:1")),
    "nodeport": hosted_spec(publishing=Publishing(Strategy.NODE_PORT, "10.0.0.9", 30091)),
}


def tree(spec: HostedSpec, content: bytes | None = None, form: Format = Format.FILES) -> AssetTree:
    return render(spec, hosted_set(), content, form)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_every_file_is_one_object_by_its_name_and_only_its_owner_reads_a_secret(spec: HostedSpec) -> None:
    rendered = tree(spec)
    for asset in rendered:
        if asset.path.endswith(".yaml"):
            found = yaml.safe_load(asset.content)
            assert asset.path.endswith(f"/{found['kind'].lower()}-{found['metadata']['name']}.yaml")
        assert asset.mode == (0o600 if "/secret-" in asset.path else 0o644)
        assert b"hunter2" not in asset.content
        assert b"PRIVATE KEY" not in asset.content
    assert [(asset.path, asset.content) for asset in tree(spec)] == [(one.path, one.content) for one in rendered]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_each_cluster_gets_its_own_namespaces_and_what_its_pods_mount(spec: HostedSpec) -> None:
    given = {spec.leases.kubeconfig_secret, spec.proxy.trusted_ca}
    for objects, namespaces in (
        (management_objects(spec, hosted_set()), {"clusters-guest"}),
        (hosted_objects(spec, hosted_set()), {"kube-system", "default"}),
    ):
        assert {one["metadata"].get("namespace") for one in objects if one["kind"] not in CLUSTER_WIDE} <= namespaces
        there = {(one["kind"], one["metadata"]["name"]) for one in objects}
        for one in objects:
            for volume in one.get("spec", {}).get("template", {}).get("spec", {}).get("volumes", []):
                wanted = volume.get("secret", {}).get("secretName") or volume.get("configMap", {}).get("name")
                kind = "Secret" if "secret" in volume else "ConfigMap"
                assert (kind, wanted) in there or wanted in given


def test_a_manifest_that_is_given_is_patched_in_its_place_and_a_static_pod_with_its_files() -> None:
    found = tree(hosted_spec(), as_bytes(deployment()))
    document = yaml.safe_load(found["management/deployment-kube-apiserver.yaml"].content)
    assert container(document, "konnectivity-server")
    assert not [asset.path for asset in found if "patches/kube-apiserver" in asset.path]
    found = tree(STATIC, as_bytes(static_pod()))
    document = yaml.safe_load(found["node/etc/kubernetes/manifests/kube-apiserver.yaml"].content)
    assert container(document, "konnectivity-server")
    assert "node/etc/kubernetes/konnectivity/server/tls.key" in found


def test_without_a_manifest_there_are_patches_also_for_sidecars_and_none_is_empty() -> None:
    found = tree(hosted_spec(components=("olm-operator",)))
    assert [asset.path.rpartition("/")[2] for asset in found if asset.path.startswith("management/patches/")] == [
        *("kube-apiserver-flags.patch", "kube-apiserver.patch", "olm-operator.patch")
    ]
    assert yaml.safe_load(found["management/patches/olm-operator.patch"].content)["metadata"]["name"] == "olm-operator"
    spec = hosted_spec(components=(), kube_apiserver=KubeApiserver(has_egress_flag=False))
    assert "management/patches/kube-apiserver-flags.patch" not in tree(spec)


def test_kustomize_has_a_base_for_each_cluster_and_a_component() -> None:
    found = tree(hosted_spec(), form=Format.KUSTOMIZE)
    for folder in ("management", "hosted"):
        listed = yaml.safe_load(found[f"{folder}/kustomization.yaml"].content)["resources"]
        there = {path.rpartition("/")[2] for asset in found if (path := asset.path).rpartition("/")[0] == folder}
        assert set(listed) == there - {"kustomization.yaml"}
    component = yaml.safe_load(found["management/patches/kustomization.yaml"].content)
    assert [one["path"] for one in component["patches"]][:2] == ["kube-apiserver-flags.patch", "kube-apiserver.patch"]


def test_what_is_left_out_is_told_and_so_is_a_token_that_cannot_be_rendered() -> None:
    known = AggregatedApi("known", (ipaddress.ip_address("172.30.0.1"),))
    assert notes(hosted_spec(components=())) == []
    assert "addresses of late are not known" in notes(hosted_spec(aggregated_apis=(known, AggregatedApi("late"))))[0]
    assert "control-plane agent" in notes(hosted_spec(aggregated_apis=(AggregatedApi("late"),)))[0]
    late = hosted_spec(aggregated_apis=(AggregatedApi("late"),))
    assert notes(late)[1:] == notes(hosted_spec()) == access_notes(hosted_spec())
    assert "konnectivity-proxy-token" in notes(late)[1]


def test_every_object_carries_the_labels_by_which_all_are_found_together() -> None:
    head = metadata(hosted_spec(), "a", "b", {"app": "x"}, {"note": "y"})
    assert head["labels"] == {
        "app": "x",
        "app.kubernetes.io/part-of": "umbilical-hosted",
        "app.kubernetes.io/instance": "guest",
    }
    assert head["annotations"] == {"note": "y"}
    assert "annotations" not in metadata(hosted_spec(), "a", "b")


def test_keys_are_mounted_for_owner_and_group_only_and_of_a_config_map_the_named_ones() -> None:
    assert secret_volume("v", "s")["secret"] == {"secretName": "s", "defaultMode": 0o640}
    assert config_map_volume("v", "c", {"a.crt": "b.crt"})["configMap"]["items"] == [{"key": "a.crt", "path": "b.crt"}]
    assert "items" not in config_map_volume("v", "c")["configMap"]


def test_a_base_lists_its_files_in_one_order_and_a_component_patches_as_given() -> None:
    assert kustomize.base(["b.yaml", "a.yaml"])["resources"] == ["a.yaml", "b.yaml"]
    assert kustomize.base([])["kind"] == "Kustomization"
    targets = {"b.patch": kustomize.deployment_target("one"), "a.patch": kustomize.deployment_target("two")}
    found = kustomize.component(targets)
    assert found["kind"] == "Component"
    assert {one["path"]: one["target"] for one in found["patches"]} == targets
    assert [one["path"] for one in found["patches"]] == ["b.patch", "a.patch"]


OVERLAY: Final = """\
resources: [kube-apiserver.yaml, olm-operator.yaml, rendered/management]
components: [rendered/management/patches]
"""
OLM: Final = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "olm-operator", "namespace": "clusters-guest"},
    "spec": {"template": {"spec": {"containers": [{"name": "olm-operator", "image": "registry.example/olm:1"}]}}},
}


def built(folder: Path) -> list[dict[str, Any]]:
    program = peers.binary("kubectl")
    assert program is not None
    return list(yaml.safe_load_all(run([str(program), "kustomize", str(folder)], 60.0)))


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    """An existing control plane, with the rendered base and component."""
    tree = render(hosted_spec(), hosted_set(), form=Format.KUSTOMIZE)
    write_tree(tree, tmp_path / "rendered", overwrite=False)
    (tmp_path / "kube-apiserver.yaml").write_bytes(as_bytes(deployment()))
    (tmp_path / "olm-operator.yaml").write_bytes(as_bytes(OLM))
    (tmp_path / "kustomization.yaml").write_text(OVERLAY)
    return tmp_path


def deployment_of(objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(one for one in objects if (one["kind"], one["metadata"]["name"]) == ("Deployment", name))


def sorted_lists(value: Any) -> Any:
    """Sort lists by name: kustomize puts new entries first."""
    if isinstance(value, dict):
        return {key: sorted_lists(one) for key, one in value.items()}
    if isinstance(value, list):
        return (
            sorted((sorted_lists(one) for one in value), key=lambda one: json.dumps(one, sort_keys=True))
            if isinstance(value[0], dict)
            else value
        )
    return value


@pytest.mark.real("kubectl")
def test_the_component_patches_a_kube_apiserver_as_we_do(overlay: Path) -> None:
    found = deployment_of(built(overlay), "kube-apiserver")
    ours = patched(read_manifest(as_bytes(deployment()), hosted_spec()), hosted_spec())
    assert sorted_lists(found) == sorted_lists(ours)


@pytest.mark.real("kubectl")
def test_the_component_puts_proxies_beside_components(overlay: Path) -> None:
    found = deployment_of(built(overlay), "olm-operator")
    assert container(found, "konnectivity-proxy-socks5")
    assert container(found, "olm-operator")["image"] == "registry.example/olm:1"


@pytest.mark.real("kubectl")
@pytest.mark.parametrize("cluster", ["management", "hosted"])
def test_a_base_builds_alone(overlay: Path, cluster: str) -> None:
    assert len(built(overlay / "rendered" / cluster)) > 5


@pytest.mark.real("kubectl")
def test_flags_are_not_given_to_the_wrong_container(overlay: Path) -> None:
    document = deployment()
    document["spec"]["template"]["spec"]["containers"].reverse()
    (overlay / "kube-apiserver.yaml").write_bytes(as_bytes(document))
    with pytest.raises(Exception, match="test"):
        built(overlay)
