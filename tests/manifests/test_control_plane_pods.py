"""The static pods of a control plane."""

from typing import Any

import pytest
from tests.support.control_plane_specs import DUAL, control_plane_spec

from umbilical.bootstrap.render.kube_apiserver import read_static_pod
from umbilical.manifests.control_plane_pods import (
    SCHEDULER_KUBECONFIG,
    controller_manager_pod,
    etcd_pod,
    kube_apiserver_pod,
    scheduler_pod,
)
from umbilical.manifests.static_pod import HostFile, PodComponent, PodMetadata, static_pod
from umbilical.manifests.tree import yaml_bytes

PODS = [etcd_pod, kube_apiserver_pod, controller_manager_pod, scheduler_pod]


def test_each_runs_without_privilege_in_the_network_of_its_host_and_lingers_only_if_it_lasts() -> None:
    for make in PODS:
        pod, throwaway = make(control_plane_spec()), make(control_plane_spec(is_throwaway=True))
        [container] = pod["spec"]["containers"]
        assert pod["spec"]["hostNetwork"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["command"] == [pod["metadata"]["name"]]
        assert container["image"] == f"localhost/{pod['metadata']['name']}:lab"
        assert throwaway["spec"]["terminationGracePeriodSeconds"] <= 5
        assert pod["spec"]["terminationGracePeriodSeconds"] >= 30


def test_files_of_the_host_are_seen_under_their_own_path_and_are_read_only_unless_said() -> None:
    files = (HostFile("a", "/etc/a"), HostFile("b", "/var/b", "DirectoryOrCreate", is_writable=True))
    pod = static_pod(PodComponent("one", "image", ("--flag",), files, {}, "1m", "1Mi", 30))
    assert pod["spec"]["volumes"] == [
        {"name": "a", "hostPath": {"path": "/etc/a", "type": "File"}},
        {"name": "b", "hostPath": {"path": "/var/b", "type": "DirectoryOrCreate"}},
    ]
    assert pod["spec"]["containers"][0]["volumeMounts"] == [
        {"name": "a", "mountPath": "/etc/a", "readOnly": True},
        {"name": "b", "mountPath": "/var/b", "readOnly": False},
    ]


def _component(**changes: Any) -> PodComponent:
    return PodComponent("one", "image", ("--flag",), changes.pop("files", ()), {}, "1m", "1Mi", 30, **changes)


def test_a_directory_of_the_host_may_have_another_name_in_the_pod_and_containers_share_it() -> None:
    shared, own = HostFile("a", "/etc/here", "Directory", mount_path="/etc/there"), HostFile("b", "/etc/b")
    pod = static_pod(_component(files=(shared,)), _component(files=(shared, own)))
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["a", "b"]
    assert pod["spec"]["volumes"][0]["hostPath"] == {"path": "/etc/here", "type": "Directory"}
    first, _ = pod["spec"]["containers"]
    assert first["volumeMounts"][0]["mountPath"] == "/etc/there"


def test_a_command_is_the_programs_name_unless_wished_and_a_scratch_directory_is_empty() -> None:
    for command, expected in ((None, ["one"]), (("hyperkube", "one"), ["hyperkube", "one"]), ((), None)):
        assert static_pod(_component(command=command))["spec"]["containers"][0].get("command") == expected
    pod = static_pod(_component(scratch=("/var/run/kubernetes",)))
    assert pod["spec"]["volumes"] == [{"name": "var-run-kubernetes", "emptyDir": {}}]
    (mount,) = pod["spec"]["containers"][0]["volumeMounts"]
    assert mount == {"name": "var-run-kubernetes", "mountPath": "/var/run/kubernetes"}


def test_privilege_is_asked_for_and_a_pod_may_be_called_otherwise_than_its_program() -> None:
    place = PodMetadata("one-bootstrap", "openshift-one", {"k8s-app": "one"})
    pod = static_pod(_component(is_privileged=True, environment={"A": "1"}), place=place)
    [container] = pod["spec"]["containers"]
    assert container["securityContext"] == {"privileged": True}
    assert container["env"] == [{"name": "A", "value": "1"}]
    assert (pod["metadata"]["name"], pod["metadata"]["namespace"]) == ("one-bootstrap", "openshift-one")
    assert pod["metadata"]["labels"] == {"component": "one", "tier": "control-plane", "k8s-app": "one"}


def _flags(pod: dict[str, Any]) -> dict[str, str]:
    flags = (flag.partition("=") for flag in pod["spec"]["containers"][0]["args"])
    return {name: value for name, _, value in flags}


@pytest.mark.parametrize(
    ("pod", "flags"),
    [
        (
            etcd_pod(control_plane_spec()),
            {
                "--listen-client-urls": "https://0.0.0.0:2379",
                "--advertise-client-urls": "https://10.90.0.1:2379",
                "--initial-cluster": "etcd-bootstrap=https://10.90.0.1:2380",
                "--client-cert-auth": "true",
                "--peer-client-cert-auth": "true",
                "--trusted-ca-file": "/etc/kubernetes/pki/etcd/ca.crt",
                "--peer-trusted-ca-file": "/etc/kubernetes/pki/etcd/ca.crt",
            },
        ),
        (
            etcd_pod(control_plane_spec(DUAL)),
            {"--listen-peer-urls": "https://[::]:2380", "--initial-advertise-peer-urls": "https://[fd90::1]:2380"},
        ),
        (
            kube_apiserver_pod(control_plane_spec()),
            {
                # Endpoints and kubelets are dialled by address, through the tunnel.
                "--enable-aggregator-routing": "true",
                "--kubelet-preferred-address-types": "InternalIP",
                "--requestheader-allowed-names": "front-proxy-client",
                "--proxy-client-cert-file": "/etc/kubernetes/pki/front-proxy-client.crt",
                # One that lasts leaves load balancers time.
                "--shutdown-delay-duration": "70s",
            },
        ),
        (kube_apiserver_pod(control_plane_spec(is_throwaway=True)), {"--shutdown-delay-duration": "0s"}),
        (
            kube_apiserver_pod(control_plane_spec(DUAL)),
            {
                "--service-cluster-ip-range": "fd93::/112,10.93.0.0/16",
                "--bind-address": "::",
                "--advertise-address": "fd90::1",
            },
        ),
        (
            kube_apiserver_pod(control_plane_spec(has_etcd=False, etcd_urls=("https://a:2379", "https://b:2379"))),
            {"--etcd-servers": "https://a:2379,https://b:2379"},
        ),
        (
            controller_manager_pod(control_plane_spec()),
            {
                # Nodes bring their own networks unless it is to cut them.
                "--allocate-node-cidrs": "false",
                "--cluster-signing-key-file": "/etc/kubernetes/pki/ca.key",
                "--root-ca-file": "/etc/kubernetes/pki/ca.crt",
                "--leader-elect-renew-deadline": "12s",
            },
        ),
        (
            controller_manager_pod(control_plane_spec(node_prefixes=(24,))),
            {"--allocate-node-cidrs": "true", "--node-cidr-mask-size": "24"},
        ),
        (
            controller_manager_pod(control_plane_spec(DUAL, node_prefixes=(64, 24))),
            {
                "--cluster-cidr": "fd92::/48,10.92.0.0/16",
                "--node-cidr-mask-size-ipv6": "64",
                "--node-cidr-mask-size-ipv4": "24",
            },
        ),
        # One that is thrown away outlives a restart of kube-apiserver.
        (controller_manager_pod(control_plane_spec(is_throwaway=True)), {"--leader-elect-renew-deadline": "50s"}),
        (scheduler_pod(control_plane_spec()), {"--kubeconfig": SCHEDULER_KUBECONFIG}),
    ],
)
def test_flags_follow_the_spec(pod: dict[str, Any], flags: dict[str, str]) -> None:
    found = _flags(pod)
    assert {name: found.get(name) for name in flags} == flags


def test_only_one_that_is_thrown_away_skips_the_disk_and_asks_as_fast_as_it_can() -> None:
    assert "--unsafe-no-fsync" not in _flags(etcd_pod(control_plane_spec()))
    assert "--unsafe-no-fsync" in _flags(etcd_pod(control_plane_spec(is_throwaway=True)))
    assert "--kube-api-qps" in _flags(controller_manager_pod(control_plane_spec(is_throwaway=True)))
    assert not [flag for flag in _flags(controller_manager_pod(control_plane_spec())) if "--kube-api-" in flag]


def test_the_rendered_kube_apiserver_is_read_as_one() -> None:
    pod = kube_apiserver_pod(control_plane_spec())
    assert read_static_pod(yaml_bytes(pod)) == pod
    assert pod["spec"]["terminationGracePeriodSeconds"] == 135


def test_kube_apiserver_is_probed_at_the_address_that_it_advertises_as_nobody() -> None:
    pod = kube_apiserver_pod(control_plane_spec(api_port=7443))
    container = pod["spec"]["containers"][0]
    asked = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert {(one["scheme"], one["host"], one["port"]) for one in asked} == {("HTTPS", "10.90.0.1", 7443)}
    assert [one["path"] for one in asked] == ["/livez", "/livez?exclude=etcd", "/readyz"]
    assert _flags(pod)["--anonymous-auth"] == "true"


def test_controllers_are_probed_where_they_listen_and_the_scheduler_has_no_key_beside_it() -> None:
    for pod in (controller_manager_pod(control_plane_spec()), scheduler_pod(control_plane_spec())):
        asked = pod["spec"]["containers"][0]["livenessProbe"]["httpGet"]
        assert _flags(pod)["--secure-port"] == str(asked["port"])
        assert _flags(pod)["--bind-address"] == asked["host"]
    volumes = scheduler_pod(control_plane_spec())["spec"]["volumes"]
    assert [volume["hostPath"]["path"] for volume in volumes] == [SCHEDULER_KUBECONFIG]
