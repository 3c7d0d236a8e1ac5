"""Files of a node with a static kube-apiserver."""

import yaml
from tests.support.hosted_certificates import hosted_set
from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.server_sidecar import client_mounts, server_container, server_flags
from umbilical.assets.hosted.spec import KubeApiserver, Server, Workload
from umbilical.assets.hosted.static_pod_files import add_static_files, static_volumes
from umbilical.assets.tree import AssetTree

SPEC = hosted_spec(kube_apiserver=KubeApiserver(workload=Workload.STATIC_POD, manifest="pod.yaml"))


def rendered() -> AssetTree:
    tree = AssetTree()
    add_static_files(tree, "node", SPEC, hosted_set())
    return tree


def test_every_file_that_the_server_is_told_of_lies_on_the_node() -> None:
    on_host = {volume["name"]: volume["hostPath"]["path"] for volume in static_volumes(SPEC) if "hostPath" in volume}
    folders = {mount["mountPath"]: on_host.get(mount["name"], "") for mount in server_container(SPEC)["volumeMounts"]}
    paths = [flag.partition("=")[2] for flag in server_flags(SPEC)]
    named = [path for path in paths if path.startswith("/etc/")]
    assert len(named) == 7
    for path in named:
        folder, _, name = path.rpartition("/")
        assert f"node{folders[folder]}/{name}" in rendered()


def test_kube_apiserver_finds_its_egress_file_and_asks_the_server_in_its_own_pod() -> None:
    asset = rendered()["node/etc/kubernetes/konnectivity/egress-selector/config.yaml"]
    cluster = yaml.safe_load(asset.content)["egressSelections"][2]["connection"]
    assert cluster["transport"]["tcp"]["url"] == "https://127.0.0.1:8090"
    on_host = {volume["name"]: volume["hostPath"]["path"] for volume in static_volumes(SPEC) if "hostPath" in volume}
    folders = {mount["mountPath"]: on_host[mount["name"]] for mount in client_mounts()}
    for path in cluster["transport"]["tcp"]["tlsConfig"].values():
        folder, _, name = path.rpartition("/")
        assert f"node{folders[folder]}/{name}" in rendered()


def test_keys_are_their_owners_alone() -> None:
    assert {asset.mode for asset in rendered() if asset.path.endswith(".key")} == {0o600}
    assert len([asset for asset in rendered() if asset.path.endswith(".key")]) == 3


def test_upstreams_server_has_no_rules_to_read() -> None:
    spec = SPEC.replace(server=Server.UPSTREAM)
    tree = AssetTree()
    add_static_files(tree, "node", spec, hosted_set())
    assert not [asset.path for asset in tree if "identities" in asset.path]
    assert "agent-identities" not in {volume["name"] for volume in static_volumes(spec)}
