"""The static pods of whole clusters: which node has which, the files they need, and what goes again."""

import json
import posixpath
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given as drawn
from hypothesis import strategies
from tests.support import hardway
from tests.support.hardway_pods import inputs, placement, tree

from umbilical.fault import RenderError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import ReleasePayload
from umbilical.hardway.artifacts.nodes.render import files_needed
from umbilical.hardway.artifacts.static_pods.placement import (
    FlagRow,
    PodPlacement,
    ProgramFlags,
    by_profile,
    on_kubernetes,
    on_openshift,
)
from umbilical.hardway.artifacts.static_pods.pods import (
    ConfigFile,
    PodFile,
    files_of,
    read_removals,
    removals,
    write_removals,
)
from umbilical.hardway.artifacts.static_pods.topics import TOPICS
from umbilical.hardway.config.cluster import ClusterProfile, Switch
from umbilical.hardway.explain.entry import TopicKind

CONTROL_PLANE = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
_JSON = strategies.recursive(
    strategies.none() | strategies.integers() | strategies.text(),
    lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
)
TABLE = (
    FlagRow("same", "1", "for all", "nothing"),
    FlagRow("node", lambda placement: placement.node.id, "by node", "nothing"),
    FlagRow("profile", by_profile(openshift="o", kubernetes="k"), "by profile", "nothing"),
    FlagRow("only-o", "yes", "there alone", "nothing", on_openshift),
    FlagRow("only-k", "yes", "there alone", "nothing", on_kubernetes),
)
PROGRAM = ProgramFlags("one", TABLE, "like this", TABLE[1:2])
BY_NAME = {topic.name: topic for topic in TOPICS}


def _pods(profile: ClusterProfile) -> dict[str, dict[str, Any]]:
    found = {asset.path: yaml.safe_load(asset.content) for asset in tree(profile) if asset.path.endswith(".yaml")}
    return {path: value for path, value in found.items() if value["kind"] == "Pod"}


def _probed(container: dict[str, Any]) -> set[int]:
    probes = [value for name, value in container.items() if name.endswith("Probe")]
    return {probe["httpGet"]["port"] for probe in probes if "httpGet" in probe}


@pytest.mark.parametrize("profile", ClusterProfile)
def test_no_pod_holds_a_key_or_a_placeholder(profile: ClusterProfile) -> None:
    for asset in tree(profile):
        assert b"PRIVATE KEY" not in asset.content
        assert b"${" not in asset.content


@pytest.mark.parametrize("profile", ClusterProfile)
def test_ports_of_probes_on_one_node_are_unique(profile: ClusterProfile) -> None:
    for node in inputs(profile).cluster.nodes:
        pods = [pod for path, pod in _pods(profile).items() if f"/{node.id}/" in path]
        ports = [port for pod in pods for container in pod["spec"]["containers"] for port in _probed(container)]
        assert len(ports) == len(set(ports)), node.id


@pytest.mark.parametrize("profile", ClusterProfile)
def test_every_pod_is_watched_requests_its_share_and_ends_in_time(profile: ClusterProfile) -> None:
    for path, pod in _pods(profile).items():
        for container in pod["spec"]["containers"]:
            # The version operator serves nothing that could be asked.
            assert "livenessProbe" in container or "cvo" in path, path
            assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert pod["spec"]["priorityClassName"] == "system-node-critical"


@pytest.mark.parametrize("profile", ClusterProfile)
def test_only_those_that_change_the_host_are_privileged(profile: ClusterProfile) -> None:
    privileged = {
        container["name"]
        for pod in _pods(profile).values()
        for container in pod["spec"]["containers"]
        if container["securityContext"].get("privileged")
    }
    assert privileged <= {"kube-proxy", "cluster-version-operator"}


def test_openshifts_pods_stand_in_the_namespaces_of_their_operators() -> None:
    pods = _pods(ClusterProfile.OPENSHIFT)
    namespaces = {path.rpartition("/")[2]: pod["metadata"]["namespace"] for path, pod in pods.items()}
    assert {name: namespaces[f"{name}-bootstrap.yaml"] for name in CONTROL_PLANE} == {
        name: f"openshift-{name}" for name in CONTROL_PLANE
    }
    assert {pod["metadata"]["namespace"] for pod in _pods(ClusterProfile.KUBERNETES).values()} == {"kube-system"}


BOOTSTRAP_PODS = [*(f"{name}-bootstrap.yaml" for name in CONTROL_PLANE), "konnectivity-server-pod.yaml"]


@pytest.mark.parametrize(
    ("profile", "node", "kube_proxy", "files"),
    [
        (ClusterProfile.KUBERNETES, "bootstrap", Switch.ON, BOOTSTRAP_PODS),
        (ClusterProfile.OPENSHIFT, "bootstrap", Switch.ON, [*BOOTSTRAP_PODS, "cvo-bootstrap.yaml"]),
        # Masters of OpenShift get theirs from operators.
        (ClusterProfile.OPENSHIFT, "master-0", Switch.ON, ["kube-proxy.yaml"]),
        (ClusterProfile.OPENSHIFT, "master-0", Switch.AUTO, []),
        (ClusterProfile.KUBERNETES, "worker-0", Switch.ON, ["kube-proxy.yaml"]),
        (ClusterProfile.KUBERNETES, "worker-0", Switch.OFF, []),
    ],
)
def test_each_node_has_its_pods(profile: ClusterProfile, node: str, kube_proxy: Switch, files: list[str]) -> None:
    given = inputs(profile)
    given = replace(given, cluster=replace(given.cluster, kube_proxy=kube_proxy))
    assert [one.file for one in files_of(given, given.cluster.node(node)) if isinstance(one, PodFile)] == files


def test_masters_of_kubernetes_have_their_own_which_wait() -> None:
    given = inputs(ClusterProfile.KUBERNETES)
    files = [file for file in files_of(given, given.cluster.masters[0]) if isinstance(file, PodFile)]
    late = [file for file in files if file.is_late]
    assert [file.file for file in late] == [f"{name}.yaml" for name in CONTROL_PLANE]
    assert [file.file for file in files if not file.is_late] == ["kube-proxy.yaml"]
    assert {file.on_node().rpartition("/")[0] for file in late} == {"/etc/kubernetes/late-static-pods"}


def test_without_the_tunnel_there_is_neither_server_nor_egress_selector() -> None:
    given = hardway.inputs(ClusterProfile.KUBERNETES, konnectivity=Switch.OFF)
    files = files_of(given, given.cluster.bootstrap)
    assert not [file for file in files if isinstance(file, ConfigFile)]
    assert "konnectivity-server-pod.yaml" not in [file.file for file in files]


def test_a_master_has_its_own_etcd_keys_and_nobody_elses() -> None:
    given = inputs(ClusterProfile.KUBERNETES)
    names = {posixpath.basename(path) for path in files_needed(given, given.cluster.masters[1])}
    assert "etcd-peer-master-1.key" in names
    assert not {name for name in names if name.startswith("etcd-peer-") and "master-1" not in name}


def test_a_worker_gets_no_key_of_the_control_plane() -> None:
    given = inputs(ClusterProfile.KUBERNETES)
    assert files_needed(given, given.cluster.workers[0]) == {
        f"{layout.NODE_KUBECONFIGS}/kube-proxy.kubeconfig": "auth/kube-proxy.kubeconfig",
        f"{layout.NODE_MANIFESTS}/kube-proxy.yaml": "static-pods/worker-0/kube-proxy.yaml",
    }


def test_signers_of_others_stay_at_home() -> None:
    given = inputs(ClusterProfile.OPENSHIFT)
    keys = {posixpath.basename(path) for path in files_needed(given, given.cluster.bootstrap) if path.endswith(".key")}
    assert {key for key in keys if "signer" in key} == {"kubelet-signer.key"}


def test_the_tunnel_goes_at_the_pivot_with_its_namespace() -> None:
    [tunnel] = removals(inputs(ClusterProfile.KUBERNETES))
    assert (tunnel.what, tunnel.stage, tunnel.namespace) == ("konnectivity", 13, "bootstrap-konnectivity")
    assert tunnel.files == (("bootstrap", "/etc/kubernetes/manifests/konnectivity-server-pod.yaml"),)


def test_openshifts_kube_proxy_goes_from_every_node_with_its_rules() -> None:
    [_, proxy] = removals(inputs(ClusterProfile.OPENSHIFT))
    assert [node for node, _ in proxy.files] == ["master-0", "master-1", "master-2", "worker-0", "worker-1"]
    assert [node for node, _ in proxy.commands] == [node for node, _ in proxy.files]
    assert {words[-1] for _, words in proxy.commands} == {"--cleanup"}


def test_what_is_not_there_is_not_removed() -> None:
    off = hardway.inputs(ClusterProfile.OPENSHIFT, konnectivity=Switch.OFF)
    assert removals(off) == []


@pytest.mark.parametrize("content", [b"", b"{}x", b"[1]", b'[{"what": "one"}]', b"\xff", b"7"])
def test_something_else_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_removals(content)


@drawn(_JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    content = json.dumps(value).encode()
    try:
        steps = read_removals(content)
    except ValueError:
        return
    assert read_removals(write_removals(steps)) == steps


def test_a_command_line_has_the_rows_that_are_for_the_node() -> None:
    openshift, master = placement(ClusterProfile.OPENSHIFT), placement(ClusterProfile.KUBERNETES, "master-1")
    assert PROGRAM.command_line(openshift) == ("--same=1", "--node=bootstrap", "--profile=o", "--only-o=yes")
    assert PROGRAM.command_line(master) == ("--same=1", "--node=master-1", "--profile=k", "--only-k=yes")
    assert PROGRAM.variables(openshift) == {"node": "bootstrap"}
    flag = TABLE[2].flag(openshift)
    assert (str(flag), flag.why, flag.without) == ("--profile=o", "by profile", "nothing")


def test_three_programs_of_openshift_live_in_one_image() -> None:
    openshift, kubernetes = placement(ClusterProfile.OPENSHIFT), placement(ClusterProfile.KUBERNETES)
    assert openshift.image("kube-scheduler") == openshift.inputs.payload.images["hyperkube"]
    assert openshift.command("kube-scheduler") == ("hyperkube", "kube-scheduler")
    assert openshift.command("etcd") == ("etcd",)
    assert kubernetes.image("kube-scheduler") == "localhost/kube-scheduler:lab"
    assert kubernetes.command("kube-scheduler") == ("kube-scheduler",)


def test_an_image_that_the_release_does_not_have_is_named() -> None:
    given = replace(inputs(ClusterProfile.OPENSHIFT), payload=ReleasePayload("4.18.0", "", {}))
    with pytest.raises(RenderError) as refusal:
        PodPlacement(given, given.cluster.bootstrap).image("kube-apiserver")
    assert refusal.value.code == "UMB716"
    assert "hyperkube" in refusal.value.why


def test_no_name_stands_twice_and_no_file_is_told_about_that_nobody_gets() -> None:
    assert len(BY_NAME) == len(TOPICS)
    files = {asset.path.rpartition("/")[2] for profile in ClusterProfile for asset in tree(profile)}
    assert {topic.name for topic in TOPICS if topic.kind is TopicKind.FILE} == files


@pytest.mark.parametrize("profile", ClusterProfile)
def test_every_flag_and_variable_of_every_pod_is_told_about(profile: ClusterProfile) -> None:
    for asset in tree(profile):
        pod = yaml.safe_load(asset.content) if asset.path.endswith(".yaml") else {}
        for container in pod.get("spec", {}).get("containers", ()):
            names = [word.partition("=")[0] for word in container["args"] if word.startswith("--")]
            names += [one["name"] for one in container.get("env", ())]
            assert [name for name in names if name not in BY_NAME] == [], asset.path


def test_a_flag_of_several_programs_says_what_it_means_to_each() -> None:
    topic = BY_NAME["--kubeconfig"]
    assert "kube-proxy: " in topic.what
    assert "cluster-version-operator" in topic.readers
    assert BY_NAME["--v"].what.count(":") == 0
