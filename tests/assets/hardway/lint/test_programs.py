"""Programs are found in static pods by name, on every node, with the artifacts that their flags name."""

import pytest
from tests.support.hardway_lint import changed
from tests.support.hardway_pki import pods, rendered

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.facts import Unreadable
from umbilical.assets.hardway.lint.programs import ETCD, KUBE_APISERVER, VERSION_OPERATOR, programs


def nodes(profile: Profile, name: str) -> list[str]:
    return [one.pod.node.id for one in programs(rendered(profile).facts(), name)]


def test_a_program_is_found_wherever_it_runs() -> None:
    assert nodes(Profile.OPENSHIFT, KUBE_APISERVER) == ["bootstrap"]
    assert nodes(Profile.KUBERNETES, KUBE_APISERVER) == ["bootstrap", "master-0", "master-1", "master-2"]
    assert nodes(Profile.OPENSHIFT, VERSION_OPERATOR) == ["bootstrap"]
    assert nodes(Profile.KUBERNETES, "kube-proxy")[-1] == "worker-1"


def test_a_program_that_nobody_runs_is_told() -> None:
    with pytest.raises(Unreadable, match="no static pod runs cluster-version-operator"):
        nodes(Profile.KUBERNETES, VERSION_OPERATOR)


def test_flags_lead_to_artifacts() -> None:
    member = programs(rendered(Profile.KUBERNETES).facts(), ETCD)[2]
    assert member.file("cert-file") == "tls/etcd-serving-master-1.crt"
    assert member.file("trusted-ca-file") == "tls/bundles/etcd-ca-bundle.crt"
    assert len(programs(rendered(Profile.KUBERNETES).facts(), KUBE_APISERVER)[0].values("tls-sni-cert-key")) == 3


def test_a_flag_or_a_file_that_is_missing_is_told() -> None:
    original = rendered(Profile.KUBERNETES)
    member = programs(original.facts(), ETCD)[0]
    with pytest.raises(Unreadable, match="has no --tls-cert-file"):
        member.file("tls-cert-file")
    path = pods(original, "etcd-bootstrap")[0]
    renamed = changed(original, lambda subject: subject.replace(path, "etcd-ca-bundle.crt", "ca.crt"))
    with pytest.raises(Unreadable, match=r"names /etc/kubernetes/secrets/ca\.crt"):
        programs(renamed.facts(), ETCD)[0].file("trusted-ca-file")


def test_a_pod_without_containers_runs_nothing() -> None:
    original = rendered(Profile.OPENSHIFT)
    path = pods(original, "kube-apiserver")[0]
    emptied = changed(original, lambda subject: subject.edit(path, lambda pod: pod.update(spec=None)))
    with pytest.raises(Unreadable, match="no static pod runs kube-apiserver"):
        programs(emptied.facts(), KUBE_APISERVER)
