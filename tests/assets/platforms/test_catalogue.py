"""Every platform that an installer knows is here, under the names that the facts give its rule."""

from pathlib import Path
from typing import Final

import pytest

from umbilical.assets.errors import AssetError
from umbilical.assets.platforms.catalogue import PLATFORMS, platform_of
from umbilical.assets.platforms.platform import BOOTSTRAP_HOST, PlaceKind
from umbilical.assets.platforms.request import Release, Request, parse_network

# What installers that have the tunnel call their rules, and the groups and tags on both sides.
NAMES: Final = {
    "aws": ("Bootstrap Konnectivity", {"ci-controlplane", "ci-node"}, "ci-controlplane"),
    "azure": ("konnectivity_in", {"VirtualNetwork"}, "ci-nsg"),
    "gcp": ("ci-bootstrap-in-konnectivity", {"ci-worker", "ci-control-plane"}, "ci-control-plane"),
    "ibmcloud": ("ci-security-group-bootstrap", {"ci-sg-cluster-wide"}, "ci-security-group-bootstrap"),
    "powervs": ("ci-sg-control-plane", {"0.0.0.0/0"}, "ci-sg-control-plane"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_is_called_as_the_installer_calls_it(name: str) -> None:
    rule = platform_of(name).rules(Request("ci", release=Release(5, 0)))[0]
    assert (rule.name, {place.value for place in rule.sources}, rule.target.value) == NAMES[name]
    assert (rule.port, rule.protocol) == (8091, "tcp")


def test_every_platform_of_the_list_is_known() -> None:
    upi = {"aws-upi", "azure-upi", "gcp-upi", "openstack-upi"}
    own = {"vsphere", "nutanix", "baremetal", "none", "external"}
    assert set(PLATFORMS) == {"aws", "azure", "gcp", "ibmcloud", "powervs", "openstack"} | upi | own


@pytest.mark.parametrize(("name", "like"), [("powervc", "openstack"), ("ovirt", "none")])
def test_an_installers_other_names_lead_to_the_platform_they_behave_like(name: str, like: str) -> None:
    assert platform_of(name).name == like


def test_an_unknown_platform_is_a_fault_that_names_the_known_ones() -> None:
    with pytest.raises(AssetError, match="known: aws, azure"):
        platform_of("nimbus")


@pytest.mark.parametrize("name", ["vsphere", "nutanix", "baremetal", "none", "external"])
def test_platforms_without_a_cloud_open_the_host_to_the_machine_networks(name: str) -> None:
    rule = platform_of(name).rules(Request(networks=(parse_network("10.0.0.0/16"), parse_network("fd00::/64"))))[0]
    assert rule.target == BOOTSTRAP_HOST
    assert [(place.kind, place.value) for place in rule.sources] == [
        (PlaceKind.NETWORK, "10.0.0.0/16"),
        (PlaceKind.NETWORK, "fd00::/64"),
    ]


@pytest.mark.parametrize("name", PLATFORMS)
def test_with_a_known_network_no_rule_is_open_to_everybody(name: str) -> None:
    request = Request("ci", networks=(parse_network("10.0.0.0/16"),), release=Release(4, 18))
    sources = [place for rule in platform_of(name).rules(request) for place in rule.sources]
    assert sources
    assert PlaceKind.ANYWHERE not in {place.kind for place in sources}


@pytest.mark.parametrize("name", PLATFORMS)
def test_leftovers_can_be_listed_and_removed_without_knowing_more_than_the_cluster(name: str) -> None:
    commands = platform_of(name).leftovers(Request("ci"))
    assert commands.show
    assert commands.close


def test_the_document_has_every_platform_with_its_rule(repository: Path) -> None:
    rows = [line.split(" | ") for line in (repository / "docs" / "firewall.md").read_text().splitlines()]
    told = {name.strip("| "): cells[0] for name, *cells in rows if cells for name in name.split(", ")}
    assert set(PLATFORMS) <= set(told)
    for name, platform in PLATFORMS.items():
        assert platform.rule in told[name], name


@pytest.mark.parametrize("name", PLATFORMS)
def test_every_platform_says_who_removes_the_rule(name: str) -> None:
    platform = platform_of(name)
    assert platform.removals
    assert platform.made_by
    assert platform.edit is not None or platform.why_no_edit
