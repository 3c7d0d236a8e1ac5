"""Which files a node needs for its static pods."""

import posixpath
from typing import Any

import pytest
import yaml
from tests.support.hardway_pods import inputs, tree

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.certificates import render_certificates
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.kubeconfigs import render_kubeconfigs
from umbilical.assets.hardway.static_pods.paths import files_needed
from umbilical.assets.tree import AssetTree
from umbilical.assets.verify.documents import Pod


@pytest.mark.parametrize("profile", Profile)
def test_everything_that_is_needed_is_rendered_by_somebody(profile: Profile) -> None:
    given = inputs(profile)
    made = {asset.path for render in (render_certificates, render_kubeconfigs) for asset in render(given, AssetTree())}
    made |= {asset.path for asset in tree(profile)}
    for node in given.cluster.nodes:
        assert set(files_needed(given, node).values()) <= made


@pytest.mark.parametrize("profile", Profile)
def test_every_path_of_a_flag_leads_to_a_file_that_the_node_gets(profile: Profile) -> None:
    given = inputs(profile)
    for node in given.cluster.nodes:
        needed = files_needed(given, node)
        for path, artifact in needed.items():
            if "manifests" in path or "late-static-pods" in path:
                _check_pod(yaml.safe_load(tree(profile)[artifact].content), needed)


def _check_pod(pod: dict[str, Any], needed: dict[str, str]) -> None:
    for container in pod["spec"]["containers"]:
        alone = Pod({**pod["spec"], "containers": [container]})
        for flag, value in alone.flags.values.items():
            for path in value.partition(":")[0].split(","):
                if path.startswith("/etc/kubernetes/") and flag != "--uds-name":
                    mount = alone.mount_of(path)
                    assert mount is not None, path
                    assert mount.on_host(path) in needed, path


def test_a_master_has_its_own_etcd_keys_and_nobody_elses() -> None:
    given = inputs(Profile.KUBERNETES)
    names = {posixpath.basename(path) for path in files_needed(given, given.cluster.masters[1])}
    assert "etcd-peer-master-1.key" in names
    assert not {name for name in names if name.startswith("etcd-peer-") and "master-1" not in name}


def test_a_worker_gets_no_key_of_the_control_plane() -> None:
    given = inputs(Profile.KUBERNETES)
    assert files_needed(given, given.cluster.workers[0]) == {
        f"{layout.NODE_KUBECONFIGS}/kube-proxy.kubeconfig": "auth/kube-proxy.kubeconfig",
        f"{layout.NODE_MANIFESTS}/kube-proxy.yaml": "static-pods/worker-0/kube-proxy.yaml",
    }


def test_signers_of_others_stay_at_home() -> None:
    given = inputs(Profile.OPENSHIFT)
    keys = {posixpath.basename(path) for path in files_needed(given, given.cluster.bootstrap) if path.endswith(".key")}
    assert {key for key in keys if "signer" in key} == {"kubelet-signer.key"}
