"""What nodes get: base, network, kubelet, container runtime, static pods and the first boot."""

import configparser
import ipaddress
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import hardway
from tests.support.hardway_nodes import (
    BASE_SCRIPT,
    SHAPES,
    content,
    earlier,
    golden,
    golden_file,
    inputs,
    machine_config_base,
    node_config,
    nodes,
)
from tests.support.ignition_validate import validate

from umbilical.fault import RenderError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.nodes.kubelet import KUBELET, UNIT, unit
from umbilical.hardway.artifacts.nodes.machine import (
    CONTENT,
    ENCAPSULATED,
    NODE_ANNOTATIONS,
    add_pause_image,
    encapsulated,
    keyfile,
)
from umbilical.hardway.artifacts.nodes.merging import NodeParts
from umbilical.hardway.artifacts.nodes.render import add_artifact, add_pods, builtin_base, files_needed
from umbilical.hardway.artifacts.nodes.topics import TOPICS
from umbilical.hardway.artifacts.static_pods.placement import PodPlacement
from umbilical.hardway.config.cluster import Cluster, ClusterNode, ClusterProfile, NodeRole
from umbilical.hardway.explain.entry import TopicKind
from umbilical.hardway.lint.node_reading import UnitCommand, commands
from umbilical.ignition.config import faults
from umbilical.manifests.tree import AssetTree

each_profile = pytest.mark.parametrize("profile", list(ClusterProfile), ids=lambda one: one.value)
BASE = machine_config_base(NodeRole.MASTER)
FILES = {topic.name: topic for topic in TOPICS if topic.kind is TopicKind.FILE}


def test_in_openshift_the_built_in_base_is_of_a_role() -> None:
    given = inputs(ClusterProfile.OPENSHIFT)
    first, second, worker = (
        builtin_base(given, given.cluster.node(one)) for one in ("master-0", "master-1", "worker-0")
    )
    assert first == second
    assert first.name.startswith("rendered-master-")
    assert worker.name.startswith("rendered-worker-")
    machine_config = json.loads(first.machine_config)
    assert machine_config["metadata"]["name"] == first.name
    assert machine_config["spec"]["config"] == json.loads(first.config)


def test_it_may_be_entered_by_the_keys_of_the_config() -> None:
    users = node_config("bootstrap", ClusterProfile.OPENSHIFT).value["passwd"]["users"]
    assert users == [{"name": "core", "sshAuthorizedKeys": [hardway.SSH_KEY]}]


def test_the_base_of_a_rendered_machine_config_is_kept_and_nothing_stands_twice() -> None:
    """Appending without merging would write the pull secret's path twice."""
    config = node_config("master-0", ClusterProfile.OPENSHIFT, is_based=True)
    assert faults(config) == []
    assert config.version == "3.5.0"
    assert len(config.files_at(layout.PULL_SECRET)) == 1
    assert content(config, BASE_SCRIPT) == "#!/bin/bash\nexit 0\n"
    units = ["kubelet.service", "ovs-configuration.service", "nodeip-configuration.service"]
    assert [unit.name for unit in config.units] == units
    assert "10-mco-default-env.conf" in config.units[0].dropins
    (user,) = config.value["passwd"]["users"]
    assert user["sshAuthorizedKeys"] == ["ssh-ed25519 BASE base@example", hardway.SSH_KEY]


@pytest.mark.parametrize("is_based", [True, False], ids=["based", "built-in"])
def test_members_of_openshift_know_the_rendered_config_they_are_made_from(is_based: bool) -> None:
    config = node_config("worker-0", ClusterProfile.OPENSHIFT, is_based=is_based)
    name = json.loads(content(config, CONTENT))["metadata"]["name"]
    assert json.loads(content(config, NODE_ANNOTATIONS))["machineconfiguration.openshift.io/currentConfig"] == name
    assert (name == machine_config_base(NodeRole.WORKER).name) == is_based
    assert config.files[-1].path == ENCAPSULATED


def read(cluster: Cluster, node: ClusterNode) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.read_string(keyfile(cluster, node).decode())
    return parser


def test_a_card_is_chosen_by_its_address_or_its_name() -> None:
    cluster = hardway.cluster()
    node = replace(cluster.node("worker-0"), mac="52:54:00:12:34:56", interface="enp1s0")
    parser = read(cluster, node)
    assert parser["ethernet"]["mac-address"] == "52:54:00:12:34:56"
    assert parser["connection"]["interface-name"] == "enp1s0"


def test_a_node_with_an_address_of_ipv6_has_no_other() -> None:
    cluster = hardway.cluster()
    networks = replace(
        cluster.networks,
        machine=ipaddress.ip_network("fd00::/64"),
        gateway=ipaddress.ip_address("fd00::1"),
        dns=ipaddress.ip_address("fd00::1"),
    )
    node = replace(cluster.node("master-0"), address=ipaddress.ip_address("fd00::5"))
    parser = read(replace(cluster, networks=networks), node)
    assert parser["ipv6"]["address1"] == "fd00::5/64"
    assert parser["ipv4"]["method"] == "disabled"


def placement(profile: ClusterProfile, node: str, workers: int = 2) -> PodPlacement:
    given = inputs(profile, 3 if workers else 1, workers)
    return PodPlacement(given, given.cluster.node(node))


def command(profile: ClusterProfile, node: str, workers: int = 2) -> UnitCommand:
    config = node_config(node, profile, 3 if workers else 1, workers)
    (found,) = [one for one in config.units if one.name == UNIT]
    (written,) = commands(found)
    return written


def test_a_role_of_openshift_has_one_unit_for_all_its_nodes() -> None:
    first, second = (unit(placement(ClusterProfile.OPENSHIFT, node)) for node in ("master-0", "master-1"))
    assert first == second


@each_profile
def test_workers_and_lonely_masters_have_no_taint(profile: ClusterProfile) -> None:
    assert "register-with-taints" not in command(profile, "worker-0").flags
    assert "register-with-taints" not in command(profile, "master-0", workers=0).flags


def test_a_release_without_one_is_refused() -> None:
    given = inputs(ClusterProfile.OPENSHIFT)
    poor = replace(given, payload=replace(given.payload, images={}))
    with pytest.raises(RenderError, match="pod"):
        add_pause_image(NodeParts(), PodPlacement(poor, poor.cluster.bootstrap))


@each_profile
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_pod_and_all_that_it_reads_lies_where_it_looks(profile: ClusterProfile, shape: tuple[int, int]) -> None:
    given = inputs(profile, *shape)
    made = earlier(given)
    for node in given.cluster.nodes:
        parts = NodeParts()
        add_pods(parts, given, node, made)
        laid = {asset.path: asset.content for asset in parts.files}
        assert laid == {path: made[artifact].content for path, artifact in files_needed(given, node).items()}


def test_two_may_want_the_same_file() -> None:
    made = AssetTree()
    made.add("tls/a.crt", b"a", 0o644)
    parts = NodeParts()
    for _ in range(2):
        add_artifact(parts, "/etc/a.crt", "tls/a.crt", made)
    assert [asset.path for asset in parts.files] == ["/etc/a.crt"]


def test_the_encapsulated_one_keeps_what_ignition_cannot_do() -> None:
    spec = encapsulated(BASE)["spec"]
    assert spec["config"] == {"ignition": {"version": "3.5.0"}}
    assert spec["kernelArguments"] == ["quiet"]
    assert spec["osImageURL"].startswith("quay.io/os@sha256:")


@each_profile
def test_the_decoded_content_is_as_recorded(profile: ClusterProfile) -> None:
    """After a wanted change: `python -m tests.support.hardway_nodes`, and read the difference."""
    assert golden(profile) == golden_file(profile).read_text()


@pytest.mark.real("ignition-validate")
def test_ignition_itself_takes_every_config_on_the_built_in_base_and_on_a_rendered_one() -> None:
    for tree in (
        nodes(ClusterProfile.KUBERNETES),
        nodes(ClusterProfile.OPENSHIFT),
        nodes(ClusterProfile.OPENSHIFT, is_based=True),
    ):
        for asset in tree:
            validate(asset.content)


@each_profile
def test_the_bootstrap_nodes_config_stays_small(profile: ClusterProfile) -> None:
    assert len(nodes(profile)["ignition/bootstrap.ign"].content) < 200_000


def test_every_flag_of_the_kubelet_is_told_about() -> None:
    flags = [topic.name for topic in TOPICS if topic.kind is TopicKind.FLAG]
    assert flags == [f"kubelet --{row.name}" for row in KUBELET.flags]


@pytest.mark.real("jq")
@pytest.mark.parametrize("name", ["hostname", "kubelet.conf", "mcs-machine-config-content.json"])
def test_the_line_to_type_shows_the_file(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts/ignition"
    folder.mkdir(parents=True)
    (folder / "master-0.ign").write_bytes(nodes(ClusterProfile.OPENSHIFT)["ignition/master-0.ign"].content)
    line = FILES[name].by_hand.replace("NODE.ign", "master-0.ign")
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run([bash, "-c", line], cwd=tmp_path, capture_output=True, timeout=30, check=False)
    (file,) = [one for one in node_config("master-0", ClusterProfile.OPENSHIFT).files if one.path.endswith(f"/{name}")]
    assert (done.stdout, done.stderr) == (file.content(), b"")
