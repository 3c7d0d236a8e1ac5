"""What the lessons on nodes do to Ignition configs."""

import json
from typing import Any

import pytest
from tests.support import hardway
from tests.support.hardway_everything import everything, usual

from umbilical.assets.hardway.cluster import Profile
from umbilical.hardway.lessons.desk import Desk, NotThere
from umbilical.hardway.lessons.node_lessons import LESSONS

BY_ID = {lesson.id: lesson for lesson in LESSONS}


def spoiled(lesson_id: str, profile: Profile = Profile.OPENSHIFT) -> Desk:
    subject = everything(profile)
    desk = Desk(subject.cluster, subject.assets, hardway.NOW)
    BY_ID[lesson_id].spoil(desk)
    return desk


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
