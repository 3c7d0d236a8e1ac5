"""What the lessons change in certificates, manifests, the load balancer and Ignition configs."""

import json

import pytest
from tests.support import hardway
from tests.support.hardway_everything import everything, usual
from tests.support.hardway_lint import Subject, changed

from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.lessons.catalogue import LESSONS
from umbilical.hardway.lessons.lesson import ArtifactCopy, MissingArtifact
from umbilical.pki.certificate import Certificate, read_certificates

BY_ID = {lesson.id: lesson for lesson in LESSONS}


def desk_of(subject: Subject) -> ArtifactCopy:
    return ArtifactCopy(subject.cluster, subject.assets, hardway.NOW)


def spoiled(lesson_id: str) -> ArtifactCopy:
    scratch = desk_of(everything(ClusterProfile.OPENSHIFT))
    BY_ID[lesson_id].spoil(scratch)
    return scratch


def certificate(scratch: ArtifactCopy, row_id: str) -> Certificate:
    return read_certificates(scratch.content(f"tls/{row_id}.crt"))[0]


def test_localhost_is_no_name_of_the_api_and_its_address_still_is() -> None:
    found = certificate(spoiled("apiserver-localhost"), "kube-apiserver-localhost-server")
    assert found.dns_names == ()
    assert "127.0.0.1" in map(str, found.ip_addresses)


def test_only_the_bootstrap_address_is_missing() -> None:
    scratch = spoiled("apiserver-bootstrap-address")
    addresses = set(certificate(scratch, "kube-apiserver-service-network-server").ip_addresses)
    assert scratch.cluster.bootstrap.address not in addresses
    assert {node.address for node in scratch.cluster.masters} <= addresses


def test_both_configurations_of_the_balancer_ask_in_plain_http() -> None:
    assert [asset.path for asset in spoiled("httpchk").changed] == [
        "infrastructure/haproxy.bootstrap.cfg",
        "infrastructure/haproxy.final.cfg",
    ]


def test_without_a_tunnel_there_is_no_port_to_spoil() -> None:
    subject = changed(everything(ClusterProfile.KUBERNETES), lambda one: one.write("manifests/08-tunnel.yaml", b"{}\n"))
    with pytest.raises(MissingArtifact):
        BY_ID["agent-port"].spoil(desk_of(subject))


def unit(scratch: ArtifactCopy, name: str) -> str:
    units = json.loads(scratch.content("ignition/bootstrap.ign"))["systemd"]["units"]
    return str(next(one["contents"] for one in units if one["name"] == name))


def test_the_bootstrap_kubelet_gets_one_flag_more() -> None:
    right = unit(desk_of(usual(ClusterProfile.OPENSHIFT)), "kubelet.service")
    wrong = unit(spoiled("bootstrap-kubelet"), "kubelet.service")
    flag = "--kubeconfig=/etc/kubernetes/kubeconfigs/localhost.kubeconfig "
    assert wrong.replace(flag, "", 1) == right


def test_where_kube_proxy_is_off_there_is_none_to_spoil() -> None:
    with pytest.raises(MissingArtifact):
        BY_ID["wrong-proxy"].spoil(desk_of(usual(ClusterProfile.OPENSHIFT)))
