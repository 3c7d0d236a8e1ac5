import base64
import json
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bootstrap_corpus import bootstrap_config

from umbilical.assets.bootkube.cluster_facts import CLUSTER_CONFIG, NETWORK_CONFIG, ClusterFacts, cluster_facts
from umbilical.assets.spec import Shape, for_shape
from umbilical.ignition.config import read_config


def _facts_of(texts: dict[str, str]) -> ClusterFacts:
    files = [
        {"path": path, "contents": {"source": f"data:;base64,{base64.b64encode(text.encode()).decode()}"}}
        for path, text in texts.items()
    ]
    config = {"ignition": {"version": "3.2.0"}, "storage": {"files": files}}
    return cluster_facts(read_config(json.dumps(config).encode()))


def test_platform_and_networks_are_read_from_the_config_itself() -> None:
    facts = cluster_facts(read_config(bootstrap_config(platform="vsphere")))
    assert facts.platform == "vsphere"
    assert facts.machine_networks == (ip_network("10.0.0.0/16"),)
    assert not facts.use_ipv6


def test_the_first_service_network_decides_the_family() -> None:
    assert cluster_facts(read_config(bootstrap_config(ipv6=True))).use_ipv6
    both = "spec:\n  serviceNetwork:\n  - 172.30.0.0/16\n  - fd02::/112\n"
    assert not _facts_of({NETWORK_CONFIG: both}).use_ipv6


def test_what_is_open_in_a_spec_is_filled_in() -> None:
    facts = cluster_facts(read_config(bootstrap_config(ipv6=True)))
    spec = facts.complete(for_shape(Shape.OPENSHIFT))
    assert spec.use_ipv6
    assert spec.machine_networks == (ip_network("fd2e:6f44:5dd8::/64"),)


def test_what_was_given_stays() -> None:
    facts = cluster_facts(read_config(bootstrap_config(ipv6=True)))
    by_address = for_shape(Shape.OPENSHIFT, node_ip=ip_address("10.0.0.9"))
    by_network = for_shape(Shape.OPENSHIFT, machine_networks=(ip_network("192.168.0.0/24"),))
    assert facts.complete(by_address) == by_address
    assert facts.complete(by_network) == by_network


def test_a_config_that_says_nothing_leaves_a_spec_as_it_is() -> None:
    facts = cluster_facts(read_config(b'{"ignition":{"version":"3.2.0"}}'))
    assert facts == ClusterFacts()
    assert facts.complete(for_shape(Shape.OPENSHIFT)) == for_shape(Shape.OPENSHIFT)


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "data: 5",
        "data: {install-config: 'a: ['}",
        "data: {install-config: '- 1'}",
        "data: {install-config: 'networking: {machineNetwork: 7}'}",
        "data: {install-config: 'networking: {machineNetwork: [7, {cidr: x}], serviceNetwork: x}'}",
        "data: {install-config: 'platform: aws'}",
        "!!python/object/apply:os.system ['true']",
    ],
)
def test_what_cannot_be_read_counts_as_not_said(text: str) -> None:
    assert _facts_of({CLUSTER_CONFIG: text, NETWORK_CONFIG: text}) == ClusterFacts()


@given(st.text(max_size=80))
def test_no_text_in_their_place_makes_it_fail(text: str) -> None:
    facts = _facts_of({CLUSTER_CONFIG: text, NETWORK_CONFIG: text})
    assert facts.complete(for_shape(Shape.OPENSHIFT)).machine_networks == facts.machine_networks
