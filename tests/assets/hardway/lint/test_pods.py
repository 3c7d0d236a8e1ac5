"""Static pods as the lint reads them."""

import pytest
from tests.support.hardway_lint import Subject, subject
from tests.support.hardway_pods import inputs, tree

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.facts import Unreadable
from umbilical.assets.hardway.lint.pods import program_pod, program_pods, static_pods


def _subject() -> Subject:
    return subject(inputs(Profile.KUBERNETES).cluster, tree(Profile.KUBERNETES))


def test_configs_beside_pods_are_none() -> None:
    found = [pod.path for pod in static_pods(_subject().facts())]
    assert "static-pods/bootstrap/kube-apiserver-bootstrap.yaml" in found
    assert "late-static-pods/master-2/etcd.yaml" in found
    assert not [path for path in found if "/config/" in path or path.endswith(".json")]


def test_a_program_is_found_on_the_nodes_that_are_asked_for() -> None:
    given = _subject()
    assert len(program_pods(given.facts(), "etcd")) == 4
    assert [pod.node.id for pod in program_pods(given.facts(), "etcd", given.cluster.bootstrap)] == ["bootstrap"]


def test_one_that_is_missing_or_stands_twice_is_told() -> None:
    given = _subject()
    with pytest.raises(Unreadable, match="0 static pods of cluster-version-operator"):
        program_pod(given.facts(), "cluster-version-operator", given.cluster.bootstrap)
    path = "static-pods/bootstrap/etcd-bootstrap.yaml"
    given.write(path.replace("etcd-b", "second-b"), given.assets[path].content)
    with pytest.raises(Unreadable, match="2 static pods of etcd"):
        program_pod(given.facts(), "etcd", given.cluster.bootstrap)


def test_a_path_is_followed_through_its_mount() -> None:
    given = _subject()
    pod = program_pod(given.facts(), "etcd", given.cluster.masters[0])
    assert pod.on_host(pod.flag("key-file")) == "/etc/kubernetes/static-pod-resources/etcd-serving-master-0.key"
    with pytest.raises(Unreadable, match="lies on no hostPath"):
        pod.on_host("/elsewhere/file")
    with pytest.raises(Unreadable, match="has no --etcd-prefix"):
        pod.flag("etcd-prefix")


def test_something_that_is_no_pod_is_not_followed() -> None:
    given = _subject()
    given.write("static-pods/bootstrap/etcd-bootstrap.yaml", b"spec: 7\n")
    [odd] = [pod for pod in static_pods(given.facts()) if pod.file == "etcd-bootstrap.yaml"]
    assert odd.spec == {}
