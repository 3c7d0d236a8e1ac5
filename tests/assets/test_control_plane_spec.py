"""What a control plane is rendered from, and what is refused."""

import ipaddress
from typing import Any

import pytest
from tests.support.control_plane_specs import DUAL, IPV4, IPV6, control_plane_spec

from umbilical.assets.control_plane_spec import Images, key_path, public_path, row, url
from umbilical.assets.errors import AssetError


def test_images_are_named_by_their_programs() -> None:
    assert Images.tagged("localhost", "lab") == Images(
        "localhost/etcd:lab",
        "localhost/kube-apiserver:lab",
        "localhost/kube-controller-manager:lab",
        "localhost/kube-scheduler:lab",
    )


def test_addresses_in_urls_have_brackets_where_they_need_them() -> None:
    assert url(ipaddress.ip_address("10.0.0.1"), 6443) == "https://10.0.0.1:6443"
    assert url("fd91::10", 2379) == "https://[fd91::10]:2379"
    assert control_plane_spec(IPV6).api_url == "https://[fd90::1]:6443"


def test_every_address_is_bound_to_in_the_wider_family() -> None:
    assert control_plane_spec(IPV4).every_address == "0.0.0.0"
    assert control_plane_spec(IPV6).every_address == "::"
    assert control_plane_spec(DUAL).every_address == "::"


def test_without_urls_the_etcd_beside_it_is_meant() -> None:
    assert control_plane_spec().etcd_servers == ("https://localhost:2379",)
    urls = ("https://10.90.0.1:2379",)
    assert control_plane_spec(has_etcd=False, etcd_urls=urls).etcd_servers == urls


def test_paths_come_from_the_table() -> None:
    assert public_path("service-account") == "/etc/kubernetes/pki/sa.pub"
    assert key_path("etcd-client") == "/etc/kubernetes/pki/apiserver-etcd-client.key"
    assert row("front-proxy-client").common_name == "front-proxy-client"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"has_etcd": False}, "none to keep its objects in"),
        ({"service_networks": ()}, "one at least"),
        (
            {"pod_networks": (ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("10.2.0.0/16"))},
            "each IP family",
        ),
        ({"service_networks": (ipaddress.ip_network("fd93::/112"),)}, "the first service network fd93::/112"),
        ({"node_prefixes": (24, 64)}, "1 pod networks and 2 prefixes"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(AssetError) as refusal:
        control_plane_spec(**changes)
    assert refusal.value.code == "UMB119"
    assert why in refusal.value.why
