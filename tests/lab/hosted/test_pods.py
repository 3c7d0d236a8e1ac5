"""Rendered pods as static pods of a standalone kubelet: their Secrets are files, and nothing needs an API."""

import posixpath
from datetime import UTC, datetime
from typing import Any, Final

import pytest
import yaml

from umbilical.bootstrap.render.render import KUBE_APISERVER_POD
from umbilical.hosted.objects import names
from umbilical.hosted.objects.sidecars import sidecar_patches
from umbilical.lab.hosted import pods
from umbilical.lab.hosted.parts import HostedParts, volume_files
from umbilical.lab.hosted.pods import AGENT_POD, COMPONENT, POD_NODE
from umbilical.lab.runner import MANIFESTS
from umbilical.manifests.control_plane_pods import kube_apiserver_pod
from umbilical.manifests.control_plane_spec import ControlPlaneImages, ControlPlaneSpec
from umbilical.manifests.tree import AssetTree, yaml_bytes

IMAGE: Final = "registry.example/ours:1"


@pytest.fixture(scope="module")
def made() -> HostedParts:
    return pods.make_parts(pods.topology(), datetime.now(UTC), IMAGE)


def pod_in(tree: AssetTree, name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(tree[f"{MANIFESTS}/{name}.yaml"].content)["spec"]
    return found


def files_seen(tree: AssetTree, pod: dict[str, Any], container: dict[str, Any]) -> set[str]:
    """Return the paths at which a container has the tree's files."""
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    return {
        posixpath.join(mount["mountPath"], posixpath.relpath(asset.path, paths[mount["name"]]))
        for mount in container["volumeMounts"]
        for asset in tree
        if mount["name"] in paths and asset.path.startswith(f"{paths[mount['name']]}/")
    }


def files_named(container: dict[str, Any]) -> set[str]:
    return {value for word in container["args"] if (value := word.partition("=")[2]).startswith("/")}


def test_the_server_s_files_are_on_the_node_of_kube_apiserver(made: HostedParts) -> None:
    topology = pods.topology()
    spec = ControlPlaneSpec(
        node_name="bootstrap",
        node_ip=topology.bootstrap.addresses[0].ip,
        service_networks=topology.service_networks,
        pod_networks=topology.pod_networks,
        images=ControlPlaneImages.tagged("localhost", "lab"),
    )
    tree = pods.kube_apiserver_files(made, yaml_bytes(kube_apiserver_pod(spec)))
    pod = pod_in(tree, "kube-apiserver")
    server = next(one for one in pod["containers"] if one["name"] == names.SERVER)
    assert KUBE_APISERVER_POD in tree
    assert server["image"] == IMAGE
    assert "--server-count=1" in server["args"]
    assert files_named(server)
    assert files_named(server) <= files_seen(tree, pod, server)


def test_the_agent_s_pod_needs_no_api_and_its_keys_are_for_the_group_of_the_image(made: HostedParts) -> None:
    tree = pods.control_plane_agent(made)
    pod = pod_in(tree, AGENT_POD)
    (agent,) = pod["containers"]
    assert agent["image"] == IMAGE
    assert f"--agent-identifiers=ipv4={pods.topology().node(POD_NODE).address}" in agent["args"]
    assert files_named(agent) <= files_seen(tree, pod, agent)
    assert {key for volume in pod["volumes"] for key in volume} == {"name", "hostPath"}
    assert "serviceAccountName" not in pod
    assert {asset.mode for asset in tree if asset.path.endswith(".key")} == {0o640}
    # The kubelet starts the pod as soon as the manifest is there.
    assert [asset.path for asset in tree][-1] == f"{MANIFESTS}/{AGENT_POD}.yaml"


def test_a_component_has_a_shell_and_gets_both_proxies(made: HostedParts) -> None:
    (container,) = pods.component()["spec"]["template"]["spec"]["containers"]
    patch = yaml.safe_load(pods.component_patch(made))
    main, *sidecars = patch["spec"]["template"]["spec"]["containers"]
    assert patch == sidecar_patches(made.spec)[COMPONENT]
    assert main["name"] == container["name"]
    assert {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} <= {one["name"] for one in main["env"]}
    assert [one["image"] for one in sidecars] == [IMAGE, IMAGE]
    tree = pods.static_pod("patched", patch, made.management_objects)
    for sidecar in sidecars:
        assert files_named(sidecar) <= files_seen(tree, pod_in(tree, "patched"), sidecar)


def test_an_optional_secret_that_only_a_cluster_can_fill_is_left_out() -> None:
    sources = [
        {"configMap": {"name": "access", "items": [{"key": "kubeconfig", "path": "kubeconfig"}]}},
        {"secret": {"name": "token", "optional": True}},
    ]
    volume = {"name": "kubeconfig", "projected": {"defaultMode": 0o640, "sources": sources}}
    objects = [{"kind": "ConfigMap", "metadata": {"name": "access"}, "data": {"kubeconfig": "text", "other": "x"}}]
    assert volume_files(volume, objects) == {"kubeconfig": (b"text", 0o640)}
    assert volume_files({"name": "tmp", "emptyDir": {}}, objects) == {}
