"""What is found out about a config before it is patched: its tunnel state, release, size and cluster."""

import base64
import json
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bootkube_script import NATIVE_RELEASES, RELEASES, Release, bootkube_script
from tests.support.bootstrap_corpus import bootstrap_config

from umbilical.bootstrap.names import RECEIPT
from umbilical.bootstrap.patch.anchors import release_line
from umbilical.bootstrap.patch.config_facts import (
    CLUSTER_CONFIG,
    NETWORK_CONFIG,
    ClusterFacts,
    TunnelState,
    cluster_facts,
    tunnel_state_of,
)
from umbilical.bootstrap.patch.plan import LIMIT_BYTES, SECRET_BYTES, WARNING_BYTES, check_size, size_warning
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.fault import RenderError
from umbilical.ignition.config import read_config


def _state(content: bytes) -> TunnelState:
    return tunnel_state_of(read_config(content))


def test_the_built_in_tunnel_is_told_off_from_on_though_its_files_are_there_in_both() -> None:
    assert {_state(bootstrap_config(release)) for release in RELEASES} == {TunnelState.NONE}
    assert {_state(bootstrap_config(release, native="off")) for release in NATIVE_RELEASES} == {TunnelState.NATIVE_OFF}
    assert {_state(bootstrap_config(release, native="on")) for release in NATIVE_RELEASES} == {TunnelState.NATIVE_ON}


def test_half_of_the_built_in_tunnel_counts_as_on_and_calls_without_the_library_as_off() -> None:
    on, off = (bootkube_script("5.0", native=native) for native in ("on", "off"))
    assert _state(bootstrap_config("5.0", native="off", script=on)) is TunnelState.NATIVE_ON
    assert _state(bootstrap_config("5.0", native="on", script=off)) is TunnelState.NATIVE_ON
    assert _state(bootstrap_config(script=off)) is TunnelState.NATIVE_OFF


def test_a_receipt_tells_a_patched_config_and_so_does_a_sourced_library() -> None:
    receipt = {"path": RECEIPT, "mode": 384, "contents": {"source": "data:,"}}
    assert _state(bootstrap_config(extra_files=(receipt,))) is TunnelState.PATCHED
    script = bootkube_script("4.18").replace("\nBOOTSTRAP", "\n. /usr/local/bin/umbilical-konnectivity.sh\nBOOTSTRAP")
    assert _state(bootstrap_config(script=script)) is TunnelState.PATCHED


def test_a_script_that_cannot_be_read_or_is_not_there_does_not_stop_classifying() -> None:
    assert _state(b'{"ignition":{"version":"3.2.0"}}') is TunnelState.NONE
    entry = b'{"path":"/usr/local/bin/bootkube.sh","contents":{"source":"data:;base64,!"}}'
    assert _state(b'{"ignition":{"version":"3.2.0"},"storage":{"files":[' + entry + b"]}}") is TunnelState.NONE


def test_the_release_of_a_script_lies_in_the_range_that_is_told() -> None:
    for release in RELEASES:
        told = release_line(bootkube_script(release, native="off" if release in NATIVE_RELEASES else "none"))
        first, _, last = told.replace(" or newer", " to 9.9").partition(" to ")
        assert Release.parse(first) <= Release.parse(release) <= Release.parse(last or first)


def test_neighbours_that_differ_are_told_apart_and_a_script_without_any_sign_as_old() -> None:
    assert release_line("#!/bin/bash\n") == "4.11 or older"
    assert release_line(bootkube_script("4.12")) == "4.12"
    assert release_line(bootkube_script("4.14")) == "4.13 to 4.14"
    assert release_line(bootkube_script("4.18")) == "4.18"
    assert release_line(bootkube_script("5.1", native="on")) == "4.23 or newer"


def test_only_a_platform_that_carries_the_file_in_a_secret_has_a_limit() -> None:
    for platform in ("aws", "powervs", "vsphere"):
        check_size(LIMIT_BYTES - 20_000, LIMIT_BYTES, platform)
        with pytest.raises(RenderError, match=f"UMB126.*{platform}") as refused:
            check_size(1000, LIMIT_BYTES + 1, platform)
        assert "without the tunnel it has 1000 bytes" in refused.value.why
    for other in ("azure", "gcp", "baremetal", "none", None):
        check_size(1000, 20 * SECRET_BYTES, other)


def test_a_warning_comes_before_the_limit() -> None:
    assert size_warning(WARNING_BYTES, "vsphere") is None
    assert "the limit on vsphere is 1016 KiB" in (size_warning(WARNING_BYTES + 1, "vsphere") or "")
    assert "AWS, PowerVS and vSphere" in (size_warning(WARNING_BYTES + 1, None) or "")
    assert size_warning(WARNING_BYTES + 1, "gcp") is None


def _facts_of(texts: dict[str, str]) -> ClusterFacts:
    files = [
        {"path": path, "contents": {"source": f"data:;base64,{base64.b64encode(text.encode()).decode()}"}}
        for path, text in texts.items()
    ]
    config = {"ignition": {"version": "3.2.0"}, "storage": {"files": files}}
    return cluster_facts(read_config(json.dumps(config).encode()))


def test_platform_networks_and_family_are_read_from_the_config_itself() -> None:
    facts = cluster_facts(read_config(bootstrap_config(platform="vsphere")))
    assert facts.platform == "vsphere"
    assert facts.machine_networks == (ip_network("10.0.0.0/16"),)
    assert not facts.use_ipv6
    assert cluster_facts(read_config(bootstrap_config(ipv6=True))).use_ipv6
    both = "spec:\n  serviceNetwork:\n  - 172.30.0.0/16\n  - fd02::/112\n"
    assert not _facts_of({NETWORK_CONFIG: both}).use_ipv6


def test_what_was_given_stays_and_a_config_that_says_nothing_leaves_a_spec_as_it_is() -> None:
    facts = cluster_facts(read_config(bootstrap_config(ipv6=True)))
    by_address = for_shape(Shape.OPENSHIFT, node_ip=ip_address("10.0.0.9"))
    by_network = for_shape(Shape.OPENSHIFT, machine_networks=(ip_network("192.168.0.0/24"),))
    assert facts.complete(by_address) == by_address
    assert facts.complete(by_network) == by_network
    facts = cluster_facts(read_config(b'{"ignition":{"version":"3.2.0"}}'))
    assert facts == ClusterFacts()
    assert facts.complete(for_shape(Shape.OPENSHIFT)) == for_shape(Shape.OPENSHIFT)


def test_what_cannot_be_read_counts_as_not_said() -> None:
    for text in (
        "a: [",
        "data: 5",
        "data: {install-config: 'a: ['}",
        "data: {install-config: '- 1'}",
        "data: {install-config: 'networking: {machineNetwork: 7}'}",
        "data: {install-config: 'networking: {machineNetwork: [7, {cidr: x}], serviceNetwork: x}'}",
        "data: {install-config: 'platform: aws'}",
        "!!python/object/apply:os.system ['true']",
    ):
        assert _facts_of({CLUSTER_CONFIG: text, NETWORK_CONFIG: text}) == ClusterFacts()


@given(st.text(max_size=80))
def test_no_text_in_their_place_makes_it_fail(text: str) -> None:
    facts = _facts_of({CLUSTER_CONFIG: text, NETWORK_CONFIG: text})
    assert facts.complete(for_shape(Shape.OPENSHIFT)).machine_networks == facts.machine_networks
