"""The static pods of whole clusters."""

from typing import Any

import pytest
import yaml
from tests.support.hardway_pods import inputs, tree

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.static_pods.render import render_static_pods
from umbilical.assets.tree import AssetTree


def _pods(profile: Profile) -> dict[str, dict[str, Any]]:
    found = {asset.path: yaml.safe_load(asset.content) for asset in tree(profile) if asset.path.endswith(".yaml")}
    return {path: value for path, value in found.items() if value["kind"] == "Pod"}


def _probed(container: dict[str, Any]) -> set[int]:
    probes = [value for name, value in container.items() if name.endswith("Probe")]
    return {probe["httpGet"]["port"] for probe in probes if "httpGet" in probe}


@pytest.mark.parametrize("profile", Profile)
def test_the_same_cluster_gives_the_same_bytes(profile: Profile) -> None:
    again = render_static_pods(inputs(profile), AssetTree())
    assert [(asset.path, asset.content) for asset in again] == [(asset.path, asset.content) for asset in tree(profile)]


@pytest.mark.parametrize("profile", Profile)
def test_no_pod_holds_a_key_or_a_placeholder(profile: Profile) -> None:
    for asset in tree(profile):
        assert b"PRIVATE KEY" not in asset.content
        assert b"${" not in asset.content


@pytest.mark.parametrize("profile", Profile)
def test_ports_of_probes_on_one_node_are_unique(profile: Profile) -> None:
    for node in inputs(profile).cluster.nodes:
        pods = [pod for path, pod in _pods(profile).items() if f"/{node.id}/" in path]
        ports = [port for pod in pods for container in pod["spec"]["containers"] for port in _probed(container)]
        assert len(ports) == len(set(ports)), node.id


@pytest.mark.parametrize("profile", Profile)
def test_every_pod_is_watched_requests_its_share_and_ends_in_time(profile: Profile) -> None:
    for path, pod in _pods(profile).items():
        for container in pod["spec"]["containers"]:
            # The version operator serves nothing that could be asked.
            assert "livenessProbe" in container or "cvo" in path, path
            assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert pod["spec"]["priorityClassName"] == "system-node-critical"


@pytest.mark.parametrize("profile", Profile)
def test_only_those_that_change_the_host_are_privileged(profile: Profile) -> None:
    privileged = {
        container["name"]
        for pod in _pods(profile).values()
        for container in pod["spec"]["containers"]
        if container["securityContext"].get("privileged")
    }
    assert privileged <= {"kube-proxy", "cluster-version-operator"}


def test_openshifts_pods_stand_in_the_namespaces_of_their_operators() -> None:
    pods = _pods(Profile.OPENSHIFT)
    namespaces = {path.rpartition("/")[2]: pod["metadata"]["namespace"] for path, pod in pods.items()}
    assert namespaces["etcd-bootstrap.yaml"] == "openshift-etcd"
    assert namespaces["kube-apiserver-bootstrap.yaml"] == "openshift-kube-apiserver"
    assert namespaces["kube-controller-manager-bootstrap.yaml"] == "openshift-kube-controller-manager"
    assert namespaces["kube-scheduler-bootstrap.yaml"] == "openshift-kube-scheduler"
    assert {pod["metadata"]["namespace"] for pod in _pods(Profile.KUBERNETES).values()} == {"kube-system"}
