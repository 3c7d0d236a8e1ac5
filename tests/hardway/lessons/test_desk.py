"""Artifacts changed in a copy: what changed, what was there, and that nodes get the same."""

import pytest
from tests.support import hardway
from tests.support.hardway_everything import everything

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.facts import Facts
from umbilical.hardway.lessons.desk import Desk, NotThere
from umbilical.pki.certificate import read_certificates
from umbilical.pki.profiles import Usage


@pytest.fixture
def desk() -> Desk:
    subject = everything(Profile.KUBERNETES)
    return Desk(subject.cluster, subject.assets, hardway.NOW)


def node_file(desk: Desk, node_id: str, path: str) -> bytes:
    facts = Facts(desk.cluster, desk.assets, hardway.NOW, True)
    return facts.node_file(desk.cluster.node(node_id), path)


def test_the_original_stays_as_it_is(desk: Desk) -> None:
    before = everything(Profile.KUBERNETES).assets["infrastructure/haproxy.final.cfg"].content
    desk.replace("infrastructure/haproxy.final.cfg", "timeout", "patience")
    assert [asset.path for asset in desk.changed] == ["infrastructure/haproxy.final.cfg"]
    assert [asset.content for asset in desk.before] == [before]


def test_what_is_removed_is_known(desk: Desk) -> None:
    desk.remove("manifests/03-rbac.yaml")
    assert desk.removed == ["manifests/03-rbac.yaml"]
    assert [asset.path for asset in desk.before] == ["manifests/03-rbac.yaml"]
    with pytest.raises(NotThere):
        desk.remove("manifests/03-rbac.yaml")


def test_a_certificate_is_issued_again_by_its_signer_also_where_a_node_gets_it(desk: Desk) -> None:
    old = desk.content("tls/etcd-serving-bootstrap.crt")
    desk.reissue("etcd-serving-bootstrap", usages=(Usage.SERVER,))
    new = desk.content("tls/etcd-serving-bootstrap.crt")
    before, after = read_certificates(old)[0], read_certificates(new)[0]
    assert (after.subject, after.ip_addresses, after.issuer) == (before.subject, before.ip_addresses, before.issuer)
    assert after.usages == ("serverAuth",)
    assert node_file(desk, "bootstrap", f"{layout.NODE_SECRETS}/etcd-serving-bootstrap.crt") == new


def test_a_static_pod_is_changed_where_its_node_gets_it_too(desk: Desk) -> None:
    desk.edit_pod("bootstrap", "etcd-bootstrap.yaml", "--name=", "--nome=")
    assert b"--nome=" in desk.content("static-pods/bootstrap/etcd-bootstrap.yaml")
    assert b"--nome=" in node_file(desk, "bootstrap", f"{layout.NODE_MANIFESTS}/etcd-bootstrap.yaml")


def test_a_static_pod_is_removed_from_its_node_too(desk: Desk) -> None:
    desk.remove_pod("worker-0", "kube-proxy.yaml")
    assert "static-pods/worker-0/kube-proxy.yaml" in desk.removed
    facts = Facts(desk.cluster, desk.assets, hardway.NOW, True)
    config = facts.ignition(desk.cluster.node("worker-0"))
    assert config.file(f"{layout.NODE_MANIFESTS}/kube-proxy.yaml") is None


@pytest.mark.parametrize("path", ["nowhere.yaml", "infrastructure/haproxy.final.cfg"])
def test_what_is_not_there_cannot_be_spoiled(desk: Desk, path: str) -> None:
    with pytest.raises(NotThere):
        desk.replace(path, "a text that nobody wrote", "")


def test_a_file_of_a_node_is_changed_by_its_path(desk: Desk) -> None:
    desk.edit_file("worker-0", "/etc/hostname", b"worker-0", b"worker-9")
    assert node_file(desk, "worker-0", "/etc/hostname").startswith(b"worker-9")
    with pytest.raises(NotThere):
        desk.edit_file("worker-0", "/etc/nothing", b"a", b"b")
