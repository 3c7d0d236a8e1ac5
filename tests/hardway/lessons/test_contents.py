"""What the lessons do to certificates, manifests, the load balancer and Ignition configs."""

import json
from typing import Any

import pytest
from tests.support import hardway
from tests.support.hardway_everything import everything, usual
from tests.support.hardway_lint import changed

from umbilical.hardway.config.cluster import Profile
from umbilical.hardway.lessons.catalogue import LESSONS
from umbilical.hardway.lessons.lesson import Desk, NotThere
from umbilical.pki.certificate import Certificate, read_certificates

BY_ID = {lesson.id: lesson for lesson in LESSONS}


def spoiled(lesson_id: str, profile: Profile = Profile.OPENSHIFT) -> Desk:
    subject = everything(profile)
    desk = Desk(subject.cluster, subject.assets, hardway.NOW)
    BY_ID[lesson_id].spoil(desk)
    return desk


def certificate(desk: Desk, row_id: str) -> Certificate:
    return read_certificates(desk.content(f"tls/{row_id}.crt"))[0]


def test_localhost_is_no_name_of_the_api_and_its_address_still_is() -> None:
    found = certificate(spoiled("apiserver-localhost"), "kube-apiserver-localhost-server")
    assert found.dns_names == ()
    assert "127.0.0.1" in map(str, found.ip_addresses)


def test_only_the_bootstrap_address_is_missing() -> None:
    desk = spoiled("apiserver-bootstrap-address")
    addresses = set(certificate(desk, "kube-apiserver-service-network-server").ip_addresses)
    assert desk.cluster.bootstrap.address not in addresses
    assert {node.address for node in desk.cluster.masters} <= addresses


def test_both_configurations_of_the_balancer_ask_in_plain_http() -> None:
    assert [asset.path for asset in spoiled("httpchk").changed] == [
        "infrastructure/haproxy.bootstrap.cfg",
        "infrastructure/haproxy.final.cfg",
    ]


def test_without_a_tunnel_there_is_no_port_to_spoil() -> None:
    subject = changed(everything(Profile.KUBERNETES), lambda one: one.write("manifests/08-tunnel.yaml", b"{}\n"))
    with pytest.raises(NotThere):
        BY_ID["agent-port"].spoil(Desk(subject.cluster, subject.assets, hardway.NOW))


def config(desk: Desk, node_id: str) -> Any:
    return json.loads(desk.content(f"ignition/{node_id}.ign"))


def unit(desk: Desk, name: str) -> str:
    units = config(desk, "bootstrap")["systemd"]["units"]
    return str(next(one["contents"] for one in units if one["name"] == name))


def test_the_bootstrap_kubelet_gets_one_flag_more() -> None:
    before = usual(Profile.OPENSHIFT)
    right = unit(Desk(before.cluster, before.assets, hardway.NOW), "kubelet.service")
    wrong = unit(spoiled("bootstrap-kubelet"), "kubelet.service")
    flag = "--kubeconfig=/etc/kubernetes/kubeconfigs/localhost.kubeconfig "
    assert wrong.replace(flag, "", 1) == right


def test_where_kube_proxy_is_off_there_is_none_to_spoil() -> None:
    subject = usual(Profile.OPENSHIFT)
    with pytest.raises(NotThere):
        BY_ID["wrong-proxy"].spoil(Desk(subject.cluster, subject.assets, hardway.NOW))
