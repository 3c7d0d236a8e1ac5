"""The bootstrap node's config."""

import pytest
from tests.support import hardway
from tests.support.hardway_nodes import content, inputs, node_config

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Profile

each_profile = pytest.mark.parametrize("profile", list(Profile), ids=lambda one: one.value)


@each_profile
def test_a_whole_control_plane_starts_from_it(profile: Profile) -> None:
    config = node_config("bootstrap", profile)
    pods = [file.path.removeprefix(f"{layout.NODE_MANIFESTS}/") for file in config.files]
    for program in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        assert f"{program}-bootstrap.yaml" in pods
    assert "konnectivity-server-pod.yaml" in pods
    assert content(config, f"{layout.NODE_CONFIGS}/egress-selector-config.yaml").count("uds:") == 1


@each_profile
def test_the_version_operator_waits_outside_of_the_watched_directory(profile: Profile) -> None:
    paths = [file.path for file in node_config("bootstrap", profile).files]
    assert f"{layout.NODE_MANIFESTS}/cvo-bootstrap.yaml" not in paths
    assert (f"{layout.NODE_LATE_MANIFESTS}/cvo-bootstrap.yaml" in paths) == (profile is Profile.OPENSHIFT)


@each_profile
def test_no_object_of_the_cluster_and_no_signer_but_the_kubelets_is_on_it(profile: Profile) -> None:
    """Objects are applied from outside; a signer's key on a node could sign anything."""
    config = node_config("bootstrap", profile)
    assert not [file.path for file in config.files if file.path.startswith("/opt/openshift/manifests")]
    signers = {file.path.rpartition("/")[2] for file in config.files if file.path.endswith("-signer.key")}
    assert signers == {"kubelet-signer.key"}


def test_it_may_be_entered_by_the_keys_of_the_config() -> None:
    users = node_config("bootstrap", Profile.OPENSHIFT).value["passwd"]["users"]
    assert users == [{"name": "core", "sshAuthorizedKeys": [hardway.SSH_KEY]}]


def test_the_pull_secret_and_the_pause_image_are_openshifts_alone() -> None:
    paths = {file.path for file in node_config("bootstrap", Profile.KUBERNETES).files}
    assert layout.PULL_SECRET not in paths
    assert not [path for path in paths if path.startswith("/etc/crio")]
    secret = node_config("bootstrap", Profile.OPENSHIFT).file(layout.PULL_SECRET)
    assert secret is not None
    assert (secret.content(), secret.mode) == (inputs(Profile.OPENSHIFT).pull_secret, 0o600)


@each_profile
def test_the_tunnels_certificates_are_not_in_it(profile: Profile) -> None:
    assert not [one.path for one in node_config("bootstrap", profile).files if one.path.startswith(layout.TUNNEL_PKI)]
