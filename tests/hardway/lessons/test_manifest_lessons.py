"""What the lessons on manifests and on the load balancer do to them."""

import pytest
import yaml
from tests.support import hardway
from tests.support.hardway_everything import everything
from tests.support.hardway_lint import changed

from umbilical.assets.hardway.cluster import Profile
from umbilical.hardway.lessons.desk import Desk, NotThere
from umbilical.hardway.lessons.manifest_lessons import LESSONS

BY_ID = {lesson.id: lesson for lesson in LESSONS}


def spoiled(lesson_id: str) -> Desk:
    subject = everything(Profile.OPENSHIFT)
    desk = Desk(subject.cluster, subject.assets, hardway.NOW)
    BY_ID[lesson_id].spoil(desk)
    return desk


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
