"""Which pods stand on which node."""

from dataclasses import replace
from typing import Any

from tests.support import hardway
from tests.support.hardway_pods import inputs

from umbilical.assets.hardway.cluster import Profile, Switch
from umbilical.assets.hardway.static_pods.pods import MASTER_FILES, ConfigFile, PodFile, files_of

CONTROL_PLANE = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]


def _pods(profile: Profile, node_id: str, **changes: Any) -> list[str]:
    given = inputs(profile)
    given = replace(given, cluster=replace(given.cluster, **changes))
    return [file.file for file in files_of(given, given.cluster.node(node_id)) if isinstance(file, PodFile)]


def test_the_bootstrap_node_has_a_control_plane_the_tunnel_and_on_openshift_the_version_operator() -> None:
    common = [*(f"{name}-bootstrap.yaml" for name in CONTROL_PLANE), "konnectivity-server-pod.yaml"]
    assert _pods(Profile.KUBERNETES, "bootstrap") == common
    assert _pods(Profile.OPENSHIFT, "bootstrap") == [*common, "cvo-bootstrap.yaml"]


def test_masters_of_openshift_get_theirs_from_operators() -> None:
    assert _pods(Profile.OPENSHIFT, "master-0") == ["kube-proxy.yaml"]
    assert _pods(Profile.OPENSHIFT, "master-0", kube_proxy=Switch.AUTO) == []


def test_masters_of_kubernetes_have_their_own_which_wait() -> None:
    given = inputs(Profile.KUBERNETES)
    files = [file for file in files_of(given, given.cluster.masters[0]) if isinstance(file, PodFile)]
    assert [file.file for file in files if file.is_late] == list(MASTER_FILES)
    assert [file.file for file in files if not file.is_late] == ["kube-proxy.yaml"]
    assert {file.on_node().rpartition("/")[0] for file in files if file.is_late} == {"/etc/kubernetes/late-static-pods"}


def test_workers_have_kube_proxy_alone() -> None:
    assert _pods(Profile.KUBERNETES, "worker-0") == ["kube-proxy.yaml"]
    assert _pods(Profile.KUBERNETES, "worker-0", kube_proxy=Switch.OFF) == []


def test_without_the_tunnel_there_is_neither_server_nor_egress_selector() -> None:
    given = hardway.inputs(Profile.KUBERNETES, konnectivity=Switch.OFF)
    files = files_of(given, given.cluster.bootstrap)
    assert not [file for file in files if isinstance(file, ConfigFile)]
    assert "konnectivity-server-pod.yaml" not in [file.file for file in files]
