"""Comma lists for three readers."""

import ipaddress

from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.no_proxy_list import for_component, for_kube_apiserver, for_user_proxy
from umbilical.assets.hosted.spec import DataPlaneProxy, Networks

EVERYWHERE = Networks(
    service=(ipaddress.ip_network("172.31.0.0/16"), ipaddress.ip_network("fd02::/112")),
    machine=(ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")),
)


def test_the_user_s_proxy_is_not_for_the_hosted_cluster_itself() -> None:
    assert for_user_proxy(hosted_spec()).split(",") == [
        ".cluster.local",
        ".hypershift.local",
        ".svc",
        "10.132.0.0/14",
        "127.0.0.1",
        "169.254.169.254",
        "172.31.0.0/16",
        "192.168.10.0/24",
        "localhost",
    ]


def test_what_the_user_excludes_is_added_trimmed_and_once() -> None:
    proxy = DataPlaneProxy(http="http://proxy:3128", no_proxy=(" .example.com ", "localhost", ""))
    entries = for_user_proxy(hosted_spec(proxy=proxy)).split(",")
    assert ".example.com" in entries
    assert len(entries) == len(set(entries))
    assert "" not in entries


def test_a_network_that_is_everything_would_switch_the_proxy_off_and_is_left_out() -> None:
    entries = for_user_proxy(hosted_spec(networks=EVERYWHERE)).split(",")
    assert "fd02::/112" in entries
    assert not {"0.0.0.0/0", "::/0"} & set(entries)


def test_what_stands_beside_a_component_never_enters_the_tunnel() -> None:
    entries = for_component(hosted_spec(cluster_domain="mgmt.example"), ("certified-operators",)).split(",")
    assert {"kube-apiserver", "etcd-client", "audit-webhook", "certified-operators"} <= set(entries)
    assert {".clusters-guest.svc", ".clusters-guest.svc.mgmt.example"} <= set(entries)


def test_a_component_s_list_leaves_the_data_plane_to_the_tunnel() -> None:
    entries = set(for_component(hosted_spec()).split(","))
    assert not entries & {".svc", ".cluster.local", "10.132.0.0/14", "172.31.0.0/16", "192.168.10.0/24"}


def test_kube_apiserver_reaches_kubelets_past_a_proxy_of_the_management_cluster() -> None:
    entries = for_kube_apiserver(hosted_spec(), (".mgmt.example", "kube-apiserver")).split(",")
    assert {"10.132.0.0/14", "172.31.0.0/16", "192.168.10.0/24"} <= set(entries)
    assert {"konnectivity-server-local", ".mgmt.example"} <= set(entries)
    assert entries.count("kube-apiserver") == 1
