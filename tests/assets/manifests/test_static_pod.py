"""What the static pods of a control plane have in common."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.control_plane_specs import control_plane_spec

from umbilical.assets.control_plane_spec import ControlPlaneSpec
from umbilical.assets.manifests.controller_manager import controller_manager_pod
from umbilical.assets.manifests.etcd import etcd_pod
from umbilical.assets.manifests.kube_apiserver_pod import kube_apiserver_pod
from umbilical.assets.manifests.scheduler import scheduler_pod
from umbilical.assets.manifests.static_pod import Component, HostFile, Place, static_pod

PODS = [etcd_pod, kube_apiserver_pod, controller_manager_pod, scheduler_pod]


@pytest.mark.parametrize("make", PODS)
def test_each_runs_without_privilege_in_the_network_of_its_host(
    make: Callable[[ControlPlaneSpec], dict[str, Any]],
) -> None:
    pod = make(control_plane_spec())
    [container] = pod["spec"]["containers"]
    assert pod["spec"]["hostNetwork"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["command"] == [pod["metadata"]["name"]]
    assert container["image"] == f"localhost/{pod['metadata']['name']}:lab"


@pytest.mark.parametrize("make", PODS)
def test_what_lives_for_minutes_does_not_linger(make: Callable[[ControlPlaneSpec], dict[str, Any]]) -> None:
    throwaway, lasting = (make(control_plane_spec(is_throwaway=flag)) for flag in (True, False))
    assert throwaway["spec"]["terminationGracePeriodSeconds"] <= 5
    assert lasting["spec"]["terminationGracePeriodSeconds"] >= 30


def test_files_of_the_host_are_seen_under_their_own_path_and_are_read_only_unless_said() -> None:
    files = (HostFile("a", "/etc/a"), HostFile("b", "/var/b", "DirectoryOrCreate", is_writable=True))
    pod = static_pod(Component("one", "image", ("--flag",), files, {}, "1m", "1Mi", 30))
    assert pod["spec"]["volumes"] == [
        {"name": "a", "hostPath": {"path": "/etc/a", "type": "File"}},
        {"name": "b", "hostPath": {"path": "/var/b", "type": "DirectoryOrCreate"}},
    ]
    assert pod["spec"]["containers"][0]["volumeMounts"] == [
        {"name": "a", "mountPath": "/etc/a", "readOnly": True},
        {"name": "b", "mountPath": "/var/b", "readOnly": False},
    ]


def _component(**changes: Any) -> Component:
    return Component("one", "image", ("--flag",), changes.pop("files", ()), {}, "1m", "1Mi", 30, **changes)


def test_a_directory_of_the_host_may_have_another_name_in_the_pod() -> None:
    files = (HostFile("a", "/etc/here", "Directory", mount_path="/etc/there"),)
    pod = static_pod(_component(files=files))
    assert pod["spec"]["volumes"] == [{"name": "a", "hostPath": {"path": "/etc/here", "type": "Directory"}}]
    assert pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"] == "/etc/there"


def test_what_two_containers_share_is_one_volume() -> None:
    shared = HostFile("a", "/etc/a")
    own = HostFile("b", "/etc/b")
    pod = static_pod(_component(files=(shared,)), _component(files=(shared, own)))
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["a", "b"]
    assert len(pod["spec"]["containers"]) == 2


def test_a_scratch_directory_is_empty_and_writable() -> None:
    pod = static_pod(_component(scratch=("/var/run/kubernetes",)))
    assert pod["spec"]["volumes"] == [{"name": "var-run-kubernetes", "emptyDir": {}}]
    assert pod["spec"]["containers"][0]["volumeMounts"] == [
        {"name": "var-run-kubernetes", "mountPath": "/var/run/kubernetes"}
    ]


def test_a_command_is_the_programs_name_unless_another_or_the_images_own_is_wished() -> None:
    for command, expected in ((None, ["one"]), (("hyperkube", "one"), ["hyperkube", "one"]), ((), None)):
        assert static_pod(_component(command=command))["spec"]["containers"][0].get("command") == expected


def test_privilege_is_asked_for_and_stands_alone() -> None:
    [container] = static_pod(_component(is_privileged=True, environment={"A": "1"}))["spec"]["containers"]
    assert container["securityContext"] == {"privileged": True}
    assert container["env"] == [{"name": "A", "value": "1"}]


def test_a_pod_may_be_called_otherwise_than_its_program() -> None:
    pod = static_pod(_component(), place=Place("one-bootstrap", "openshift-one", {"k8s-app": "one"}))
    assert pod["metadata"]["name"] == "one-bootstrap"
    assert pod["metadata"]["namespace"] == "openshift-one"
    assert pod["metadata"]["labels"] == {"component": "one", "tier": "control-plane", "k8s-app": "one"}
