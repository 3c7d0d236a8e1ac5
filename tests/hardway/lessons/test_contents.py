"""What the lessons do to certificates, manifests, the load balancer and Ignition configs."""

import json
from typing import Any

import pytest
import yaml
from tests.support import hardway
from tests.support.hardway_everything import everything, usual
from tests.support.hardway_lint import changed

from umbilical.assets.hardway.cluster import Profile
from umbilical.hardway.lessons.catalogue import LESSONS
from umbilical.hardway.lessons.desk import Desk, NotThere
from umbilical.pki.certificate import Certificate, read_certificates

BY_ID = {lesson.id: lesson for lesson in LESSONS}


def spoiled(lesson_id: str, profile: Profile = Profile.OPENSHIFT) -> Desk:
    subject = everything(profile)
    desk = Desk(subject.cluster, subject.assets, hardway.NOW)
    BY_ID[lesson_id].spoil(desk)
    return desk


def certificate(desk: Desk, row_id: str) -> Certificate:
    return read_certificates(desk.content(f"tls/{row_id}.crt"))[0]


def test_the_serving_certificate_of_etcd_cannot_be_a_client() -> None:
    assert certificate(spoiled("etcd-serving"), "etcd-serving-bootstrap").usages == ("serverAuth",)


def test_localhost_is_no_name_of_the_api_and_its_address_still_is() -> None:
    found = certificate(spoiled("apiserver-localhost"), "kube-apiserver-localhost-server")
    assert found.dns_names == ()
    assert "127.0.0.1" in map(str, found.ip_addresses)


def test_only_the_bootstrap_address_is_missing() -> None:
    desk = spoiled("apiserver-bootstrap-address")
    addresses = set(certificate(desk, "kube-apiserver-service-network-server").ip_addresses)
    assert desk.cluster.bootstrap.address not in addresses
    assert {node.address for node in desk.cluster.masters} <= addresses


def test_the_front_proxy_is_not_among_the_allowed_names() -> None:
    text = spoiled("proxy-client").content("static-pods/bootstrap/kube-apiserver-bootstrap.yaml").decode()
    assert "--requestheader-allowed-names=system:admin" in text


@pytest.mark.parametrize(
    ("lesson_id", "path"),
    [
        ("feature-gate", "manifests/04-feature-gate.yaml"),
        ("infrastructure-status", "manifests/05-infrastructure.yaml"),
    ],
)
def test_a_status_is_gone_and_the_object_is_still_there(lesson_id: str, path: str) -> None:
    value = yaml.safe_load(spoiled(lesson_id).content(path))
    assert "status" not in value
    assert value["metadata"]["name"] == "cluster"


def test_the_endpoints_are_in_the_form_of_the_log() -> None:
    value = yaml.safe_load(spoiled("etcd-endpoints").content("manifests/06-etcd-endpoints.yaml"))
    assert value["data"] == {"bootstrapIP": "192.168.126.100"}
    assert "annotations" not in value["metadata"]


def test_both_configurations_of_the_balancer_ask_in_plain_http() -> None:
    assert [asset.path for asset in spoiled("httpchk").changed] == [
        "infrastructure/haproxy.bootstrap.cfg",
        "infrastructure/haproxy.final.cfg",
    ]


def test_agents_dial_another_port() -> None:
    assert b"--proxy-server-port=8132" in spoiled("agent-port").content("manifests/08-tunnel.yaml")


def test_without_a_tunnel_there_is_no_port_to_spoil() -> None:
    subject = changed(everything(Profile.KUBERNETES), lambda one: one.write("manifests/08-tunnel.yaml", b"{}\n"))
    with pytest.raises(NotThere):
        BY_ID["agent-port"].spoil(Desk(subject.cluster, subject.assets, hardway.NOW))


def test_the_domain_is_the_base_domain() -> None:
    value = yaml.safe_load(spoiled("dns-domain").content("manifests/05-dns.yaml"))
    assert value["spec"]["baseDomain"] == "example.com"


def config(desk: Desk, node_id: str) -> Any:
    return json.loads(desk.content(f"ignition/{node_id}.ign"))


def paths(desk: Desk, node_id: str) -> list[str]:
    return [file["path"] for file in config(desk, node_id)["storage"]["files"]]


def unit(desk: Desk, name: str) -> str:
    units = config(desk, "bootstrap")["systemd"]["units"]
    return str(next(one["contents"] for one in units if one["name"] == name))


def test_the_bootstrap_kubelet_gets_one_flag_more() -> None:
    before = usual(Profile.OPENSHIFT)
    right = unit(Desk(before.cluster, before.assets, hardway.NOW), "kubelet.service")
    wrong = unit(spoiled("bootstrap-kubelet"), "kubelet.service")
    flag = "--kubeconfig=/etc/kubernetes/kubeconfigs/localhost.kubeconfig "
    assert wrong.replace(flag, "", 1) == right


def test_the_script_is_moved_with_the_unit_that_runs_it() -> None:
    desk = spoiled("script-below-opt")
    assert "/opt/openshift/bootkube.sh" in paths(desk, "bootstrap")
    assert "/opt/openshift/bootkube.sh" in unit(desk, "bootkube.service")


@pytest.mark.parametrize(
    ("profile", "path"),
    [(Profile.OPENSHIFT, "/var/lib/kubelet/config.json"), (Profile.KUBERNETES, "/etc/hostname")],
)
def test_a_path_stands_twice(profile: Profile, path: str) -> None:
    assert paths(spoiled("path-twice", profile), "master-0").count(path) == 2


def test_the_kubelets_bundle_lies_where_nobody_looks() -> None:
    found = paths(spoiled("kubelet-ca"), "master-1")
    assert "/etc/kubernetes/ca.crt" in found
    assert "/etc/kubernetes/kubelet-ca.crt" not in found


def test_kube_proxy_runs_from_the_image_of_the_api_server() -> None:
    desk = spoiled("wrong-proxy", Profile.KUBERNETES)
    assert b"image: localhost/kube-apiserver:lab" in desk.content("static-pods/master-0/kube-proxy.yaml")


def test_no_member_has_kube_proxy() -> None:
    desk = spoiled("no-proxy", Profile.KUBERNETES)
    assert not [path for path in desk.assets if path.endswith("kube-proxy.yaml")]


def test_where_kube_proxy_is_off_there_is_none_to_spoil() -> None:
    subject = usual(Profile.OPENSHIFT)
    with pytest.raises(NotThere):
        BY_ID["wrong-proxy"].spoil(Desk(subject.cluster, subject.assets, hardway.NOW))
