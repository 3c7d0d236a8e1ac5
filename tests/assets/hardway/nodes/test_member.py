"""Configs of masters and workers."""

import json

import pytest
from tests.support import hardway
from tests.support.hardway_nodes import BASE_SCRIPT, content, inputs, machine_config_base, node_config

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Profile, Role
from umbilical.assets.hardway.nodes.first_boot import CONTENT, ENCAPSULATED, NODE_ANNOTATIONS
from umbilical.assets.hardway.nodes.network import HOSTNAME
from umbilical.ignition.config import faults
from umbilical.pki.hardway_set import Bundle

each_profile = pytest.mark.parametrize("profile", list(Profile), ids=lambda one: one.value)


@each_profile
@pytest.mark.parametrize("node", ["master-0", "worker-1"])
def test_a_member_has_its_name_its_first_identity_and_whom_to_believe(profile: Profile, node: str) -> None:
    config = node_config(node, profile)
    assert content(config, HOSTNAME) == f"{node}.ocp4.example.com\n"
    bundle = inputs(profile).certificates.bundle(Bundle.CLIENT_CA)
    assert content(config, layout.KUBELET_CLIENT_CA).encode() == bundle
    kubeconfig = config.file(layout.BOOTSTRAP_KUBECONFIG)
    assert kubeconfig is not None
    assert kubeconfig.mode == 0o600
    assert "https://api-int.ocp4.example.com:6443" in kubeconfig.text()


def test_the_base_of_a_rendered_machine_config_is_kept_and_nothing_stands_twice() -> None:
    """The log that all this began with appended blindly, and the pull secret's path stood twice."""
    config = node_config("master-0", Profile.OPENSHIFT, is_based=True)
    assert faults(config) == []
    assert config.version == "3.5.0"
    assert len(config.files_at(layout.PULL_SECRET)) == 1
    assert content(config, BASE_SCRIPT) == "#!/bin/bash\nexit 0\n"
    assert [unit.name for unit in config.units] == ["kubelet.service", "ovs-configuration.service"]
    assert "10-mco-default-env.conf" in config.units[0].dropins
    (user,) = config.value["passwd"]["users"]
    assert user["sshAuthorizedKeys"] == ["ssh-ed25519 BASE base@example", hardway.SSH_KEY]


@pytest.mark.parametrize("is_based", [True, False], ids=["based", "built-in"])
def test_members_of_openshift_know_the_rendered_config_they_are_made_from(is_based: bool) -> None:
    config = node_config("worker-0", Profile.OPENSHIFT, is_based=is_based)
    name = json.loads(content(config, CONTENT))["metadata"]["name"]
    assert json.loads(content(config, NODE_ANNOTATIONS))["machineconfiguration.openshift.io/currentConfig"] == name
    assert (name == machine_config_base(Role.WORKER).name) == is_based
    assert config.files[-1].path == ENCAPSULATED


def test_masters_of_openshift_get_their_control_plane_from_operators() -> None:
    paths = [file.path for file in node_config("master-0", Profile.OPENSHIFT).files]
    assert not [path for path in paths if path.startswith(layout.NODE_LATE_MANIFESTS)]
    assert not [path for path in paths if path.startswith(layout.MASTER_SECRETS)]


def test_masters_of_the_kubernetes_profile_bring_theirs_and_wait_with_it() -> None:
    config = node_config("master-1", Profile.KUBERNETES)
    names = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
    for name in names:
        assert config.file(f"{layout.NODE_LATE_MANIFESTS}/{name}.yaml") is not None
        assert config.file(f"{layout.NODE_MANIFESTS}/{name}.yaml") is None
    directories = {entry["path"]: entry["mode"] for entry in config.value["storage"]["directories"]}
    assert directories[layout.ETCD_DATA] == 0o700


def test_workers_have_no_key_of_the_control_plane() -> None:
    config = node_config("worker-0", Profile.KUBERNETES)
    assert [file.path for file in config.files if file.path.endswith(".key")] == []
    assert config.file(f"{layout.NODE_MANIFESTS}/kube-proxy.yaml") is not None


def test_only_the_kubernetes_profile_brings_a_pod_network() -> None:
    conflist = "/etc/cni/net.d/10-pods.conflist"
    assert node_config("worker-0", Profile.KUBERNETES).file(conflist) is not None
    assert node_config("worker-0", Profile.OPENSHIFT).file(conflist) is None
