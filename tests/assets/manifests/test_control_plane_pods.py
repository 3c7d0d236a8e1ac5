"""The static pods of a control plane."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.control_plane_specs import DUAL, control_plane_spec

from umbilical.assets.control_plane_spec import ControlPlaneSpec
from umbilical.assets.manifests.controller_manager import controller_manager_pod
from umbilical.assets.manifests.etcd import etcd_pod, member_name
from umbilical.assets.manifests.kube_apiserver import read_static_pod
from umbilical.assets.manifests.kube_apiserver_pod import kube_apiserver_pod
from umbilical.assets.manifests.scheduler import KUBECONFIG, scheduler_pod
from umbilical.assets.manifests.static_pod import Component, HostFile, Place, static_pod
from umbilical.assets.tree import yaml_bytes

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


def _flags(pod: dict[str, Any]) -> dict[str, str]:
    flags = (flag.partition("=") for flag in pod["spec"]["containers"][0]["args"])
    return {name: value for name, _, value in flags}


def test_it_is_reached_by_its_node_and_listens_everywhere() -> None:
    flags = _flags(etcd_pod(control_plane_spec()))
    assert flags["--listen-client-urls"] == "https://0.0.0.0:2379"
    assert flags["--advertise-client-urls"] == "https://10.90.0.1:2379"
    assert flags["--initial-cluster"] == "etcd-bootstrap=https://10.90.0.1:2380"


def test_ipv6_addresses_stand_in_brackets() -> None:
    flags = _flags(etcd_pod(control_plane_spec(DUAL)))
    assert flags["--listen-peer-urls"] == "https://[::]:2380"
    assert flags["--initial-advertise-peer-urls"] == "https://[fd90::1]:2380"


def test_clients_and_peers_need_certificates() -> None:
    flags = _flags(etcd_pod(control_plane_spec()))
    assert flags["--client-cert-auth"] == flags["--peer-client-cert-auth"] == "true"
    assert flags["--trusted-ca-file"] == flags["--peer-trusted-ca-file"] == "/etc/kubernetes/pki/etcd/ca.crt"


def test_it_waits_for_the_disk_unless_it_is_thrown_away() -> None:
    assert "--unsafe-no-fsync" not in _flags(etcd_pod(control_plane_spec()))
    assert "--unsafe-no-fsync" in _flags(etcd_pod(control_plane_spec(is_throwaway=True)))


def test_the_bootstrap_member_has_the_name_that_openshift_looks_for() -> None:
    assert member_name(control_plane_spec()) == "etcd-bootstrap"


def test_it_is_read_as_a_kube_apiserver() -> None:
    pod = kube_apiserver_pod(control_plane_spec())
    assert read_static_pod(yaml_bytes(pod)) == pod


def test_it_dials_endpoints_and_kubelets_by_address() -> None:
    flags = _flags(kube_apiserver_pod(control_plane_spec()))
    assert flags["--enable-aggregator-routing"] == "true"
    assert flags["--kubelet-preferred-address-types"] == "InternalIP"


def test_aggregated_apis_accept_the_name_that_it_shows_them() -> None:
    flags = _flags(kube_apiserver_pod(control_plane_spec()))
    assert flags["--requestheader-allowed-names"] == "front-proxy-client"
    assert flags["--proxy-client-cert-file"] == "/etc/kubernetes/pki/front-proxy-client.crt"


def test_two_families_give_two_service_ranges_the_nodes_own_first() -> None:
    flags = _flags(kube_apiserver_pod(control_plane_spec(DUAL)))
    assert flags["--service-cluster-ip-range"] == "fd93::/112,10.93.0.0/16"
    assert flags["--bind-address"] == "::"
    assert flags["--advertise-address"] == "fd90::1"


def test_another_nodes_etcd_is_asked_where_it_has_none() -> None:
    urls = ("https://10.90.0.1:2379", "https://10.90.0.2:2379")
    flags = _flags(kube_apiserver_pod(control_plane_spec(has_etcd=False, etcd_urls=urls)))
    assert flags["--etcd-servers"] == ",".join(urls)


def test_it_is_probed_at_the_address_that_it_advertises_as_nobody() -> None:
    pod = kube_apiserver_pod(control_plane_spec(api_port=7443))
    container = pod["spec"]["containers"][0]
    asked = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert {(one["scheme"], one["host"], one["port"]) for one in asked} == {("HTTPS", "10.90.0.1", 7443)}
    assert [one["path"] for one in asked] == ["/livez", "/livez?exclude=etcd", "/readyz"]
    assert _flags(pod)["--anonymous-auth"] == "true"


def test_one_that_lasts_leaves_load_balancers_time() -> None:
    pod = kube_apiserver_pod(control_plane_spec())
    assert _flags(pod)["--shutdown-delay-duration"] == "70s"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 135
    assert _flags(kube_apiserver_pod(control_plane_spec(is_throwaway=True)))["--shutdown-delay-duration"] == "0s"


def _flags_of_controller_manager(spec: ControlPlaneSpec) -> list[str]:
    return list(controller_manager_pod(spec)["spec"]["containers"][0]["args"])


def test_nodes_bring_their_own_networks_unless_it_is_to_cut_them() -> None:
    assert "--allocate-node-cidrs=false" in _flags_of_controller_manager(control_plane_spec())
    flags = _flags_of_controller_manager(control_plane_spec(node_prefixes=(24,)))
    assert flags[-2:] == ["--allocate-node-cidrs=true", "--node-cidr-mask-size=24"]


def test_two_families_have_a_size_each() -> None:
    flags = _flags_of_controller_manager(control_plane_spec(DUAL, node_prefixes=(64, 24)))
    assert "--cluster-cidr=fd92::/48,10.92.0.0/16" in flags
    assert flags[-2:] == ["--node-cidr-mask-size-ipv6=64", "--node-cidr-mask-size-ipv4=24"]


def test_it_signs_with_the_authority_that_kubelets_trust() -> None:
    flags = _flags_of_controller_manager(control_plane_spec())
    assert "--cluster-signing-key-file=/etc/kubernetes/pki/ca.key" in flags
    assert "--root-ca-file=/etc/kubernetes/pki/ca.crt" in flags


def test_it_is_probed_where_it_listens() -> None:
    container = controller_manager_pod(control_plane_spec())["spec"]["containers"][0]
    asked = container["livenessProbe"]["httpGet"]
    assert f"--bind-address={asked['host']}" in container["args"]
    assert f"--secure-port={asked['port']}" in container["args"]


def test_one_that_is_thrown_away_outlives_a_restart_of_kube_apiserver() -> None:
    assert "--leader-elect-renew-deadline=12s" in _flags_of_controller_manager(control_plane_spec())
    assert "--leader-elect-renew-deadline=50s" in _flags_of_controller_manager(control_plane_spec(is_throwaway=True))


def test_only_one_that_is_thrown_away_may_ask_as_fast_as_it_can() -> None:
    assert any(
        flag.startswith("--kube-api-qps=")
        for flag in _flags_of_controller_manager(control_plane_spec(is_throwaway=True))
    )
    assert not any(flag.startswith("--kube-api-") for flag in _flags_of_controller_manager(control_plane_spec()))


def test_it_needs_its_kubeconfig_and_no_key_beside_it() -> None:
    pod = scheduler_pod(control_plane_spec())
    assert [volume["hostPath"]["path"] for volume in pod["spec"]["volumes"]] == [KUBECONFIG]
    assert f"--kubeconfig={KUBECONFIG}" in pod["spec"]["containers"][0]["args"]


def test_it_is_probed_where_it_listens_scheduler() -> None:
    container = scheduler_pod(control_plane_spec())["spec"]["containers"][0]
    assert f"--secure-port={container['livenessProbe']['httpGet']['port']}" in container["args"]
