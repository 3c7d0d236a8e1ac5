"""A node's address and name."""

import configparser
import ipaddress
from dataclasses import replace

import pytest
from tests.support import hardway

from umbilical.assets.hardway.cluster import Cluster, Node, Profile
from umbilical.assets.hardway.nodes.network import HOSTNAME, KEYFILE, add_network, keyfile, pod_routes
from umbilical.assets.hardway.nodes.parts import Parts


def read(cluster: Cluster, node: Node) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.read_string(keyfile(cluster, node).decode())
    return parser


def test_the_keyfile_says_what_the_config_says() -> None:
    cluster = hardway.cluster()
    parser = read(cluster, cluster.node("master-1"))
    assert dict(parser["ipv4"]) == {
        "method": "manual",
        "address1": "192.168.126.102/24",
        "gateway": "192.168.126.1",
        "dns": "192.168.126.1;",
    }
    assert dict(parser["ipv6"]) == {"method": "disabled"}
    assert parser["connection"]["type"] == "ethernet"


def test_without_a_card_named_the_connection_fits_any() -> None:
    cluster = hardway.cluster()
    parser = read(cluster, cluster.node("master-0"))
    assert "interface-name" not in parser["connection"]
    assert not parser.has_section("ethernet")


def test_a_card_is_chosen_by_its_address_or_its_name() -> None:
    cluster = hardway.cluster()
    node = replace(cluster.node("worker-0"), mac="52:54:00:12:34:56", interface="enp1s0")
    parser = read(cluster, node)
    assert parser["ethernet"]["mac-address"] == "52:54:00:12:34:56"
    assert parser["connection"]["interface-name"] == "enp1s0"


def test_a_node_with_an_address_of_ipv6_has_no_other() -> None:
    cluster = hardway.cluster()
    networks = replace(
        cluster.networks,
        machine=ipaddress.ip_network("fd00::/64"),
        gateway=ipaddress.ip_address("fd00::1"),
        dns=ipaddress.ip_address("fd00::1"),
    )
    node = replace(cluster.node("master-0"), address=ipaddress.ip_address("fd00::5"))
    parser = read(replace(cluster, networks=networks), node)
    assert parser["ipv6"]["address1"] == "fd00::5/64"
    assert parser["ipv4"]["method"] == "disabled"


def test_members_of_the_kubernetes_profile_have_a_route_to_the_pods_of_every_other() -> None:
    cluster = hardway.cluster(Profile.KUBERNETES, 1, 2)
    routes = dict(pod_routes(cluster, cluster.node("worker-0")))
    assert routes == {"10.128.0.0/23": "192.168.126.101", "10.128.4.0/23": "192.168.126.111"}
    ipv4 = read(cluster, cluster.node("worker-0"))["ipv4"]
    assert [ipv4["route1"], ipv4["route2"]] == [f"{way},{hop}" for way, hop in routes.items()]


@pytest.mark.parametrize(
    ("profile", "node"), [(Profile.KUBERNETES, "bootstrap"), (Profile.OPENSHIFT, "master-0")], ids=str
)
def test_nobody_else_has_routes_to_pods(profile: Profile, node: str) -> None:
    cluster = hardway.cluster(profile)
    assert list(pod_routes(cluster, cluster.node(node))) == []


def test_networkmanager_will_read_it_and_the_name_is_the_full_one() -> None:
    cluster = hardway.cluster()
    parts = Parts()
    add_network(parts, cluster, cluster.node("master-2"))
    assert parts.files[KEYFILE].mode == 0o600
    assert parts.files[HOSTNAME].content == b"master-2.ocp4.example.com\n"
