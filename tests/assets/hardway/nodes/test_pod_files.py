"""Static pods on nodes, with the files that they read."""

import pytest
from tests.support.hardway_nodes import SHAPES, earlier, inputs

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.nodes.parts import Parts
from umbilical.assets.hardway.nodes.pod_files import add_artifact, add_pods
from umbilical.assets.hardway.static_pods.paths import files_needed
from umbilical.assets.tree import AssetTree


@pytest.mark.parametrize("profile", list(Profile), ids=lambda one: one.value)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_pod_and_all_that_it_reads_lies_where_it_looks(profile: Profile, shape: tuple[int, int]) -> None:
    given = inputs(profile, *shape)
    made = earlier(given)
    for node in given.cluster.nodes:
        parts = Parts()
        add_pods(parts, given, node, made)
        laid = {asset.path: asset.content for asset in parts.files}
        assert laid == {path: made[artifact].content for path, artifact in files_needed(given, node).items()}


def test_secrets_lie_in_a_directory_of_roots_alone() -> None:
    given = inputs(Profile.KUBERNETES)
    made = earlier(given)
    parts = Parts()
    add_pods(parts, given, given.cluster.node("master-0"), made)
    assert parts.directories[layout.MASTER_SECRETS] == 0o700
    assert parts.directories[layout.NODE_KUBECONFIGS] == 0o700
    assert parts.directories[layout.NODE_LATE_MANIFESTS] == 0o755
    key = parts.files[f"{layout.MASTER_SECRETS}/etcd-peer-master-0.key"]
    assert (key.content, key.mode) == (made[layout.key("etcd-peer-master-0")].content, 0o600)


def test_no_node_has_the_etcd_keys_of_another() -> None:
    given = inputs(Profile.KUBERNETES)
    made = earlier(given)
    parts = Parts()
    add_pods(parts, given, given.cluster.node("master-0"), made)
    assert [asset.path for asset in parts.files if "master-1" in asset.path or "bootstrap" in asset.path] == []


def test_two_may_want_the_same_file() -> None:
    made = AssetTree()
    made.add("tls/a.crt", b"a", 0o644)
    parts = Parts()
    for _ in range(2):
        add_artifact(parts, "/etc/a.crt", "tls/a.crt", made)
    assert [asset.path for asset in parts.files] == ["/etc/a.crt"]
