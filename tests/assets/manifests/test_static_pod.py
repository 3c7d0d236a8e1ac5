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
from umbilical.assets.manifests.static_pod import Component, HostFile, static_pod

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
