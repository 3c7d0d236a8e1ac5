"""kube-proxy's pods."""

from dataclasses import replace
from ipaddress import ip_address

from tests.support.hardway_pods import document, flags, inputs, seat

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.static_pods.kube_proxy import kube_proxy_pod
from umbilical.assets.hardway.static_pods.seat import Seat

PATH = "static-pods/worker-1/kube-proxy.yaml"


def test_the_kubernetes_profile_writes_nftables_and_leaves_the_machine_alone() -> None:
    told = flags(document(Profile.KUBERNETES, PATH))
    assert told["proxy-mode"] == ["nftables"]
    assert {value for name, [value] in told.items() if name.startswith("conntrack-")} == {"0", "0s"}
    assert told["hostname-override"] == ["worker-1.ocp4.example.com"]
    assert told["kubeconfig"] == ["/etc/kubernetes/kubeconfigs/kube-proxy.kubeconfig"]


def test_openshift_shares_iptables_with_its_host() -> None:
    pod = document(Profile.OPENSHIFT, PATH)
    volumes = {one["name"]: one["hostPath"] for one in pod["spec"]["volumes"]}
    assert volumes["xtables-lock"] == {"path": "/run/xtables.lock", "type": "FileOrCreate"}
    mounts = {one["name"]: one["readOnly"] for one in pod["spec"]["containers"][0]["volumeMounts"]}
    assert mounts == {"kubeconfig": True, "xtables-lock": False, "lib-modules": True}
    assert flags(pod)["kubeconfig"] == ["/etc/kubernetes/kubeconfig"]
    assert pod["spec"]["containers"][0]["command"] == ["/usr/bin/kube-proxy"]
    assert pod["spec"]["containers"][0]["image"] == seat(Profile.OPENSHIFT).inputs.payload.images["kube-proxy"]


def test_it_is_privileged_in_the_host_network() -> None:
    for profile in Profile:
        spec = document(profile, PATH)["spec"]
        assert spec["hostNetwork"] is True
        assert spec["containers"][0]["securityContext"] == {"privileged": True}


def test_an_ipv6_address_is_bracketed() -> None:
    given = inputs(Profile.KUBERNETES)
    node = replace(given.cluster.workers[0], address=ip_address("fd00::10"))
    assert flags(kube_proxy_pod(Seat(given, node)))["healthz-bind-address"] == ["[::]:10256"]
