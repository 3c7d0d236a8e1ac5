"""Every platform that an installer knows is here, and nothing that a user types reaches it unchecked."""

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.fault import RenderError
from umbilical.firewall.platforms.catalogue import PLATFORMS, platform_of
from umbilical.firewall.platforms.own_network import leftovers, own_network
from umbilical.firewall.platforms.platform import ANYWHERE, BOOTSTRAP_HOST, Remover, RuleSide, RuleSideKind
from umbilical.firewall.platforms.request import INFRA_ID, ReleaseLine, RuleRequest, parse_network, parse_release

# What installers that have the tunnel call their rules, and the groups and tags on both sides.
NAMES: Final = {
    "aws": ("Bootstrap Konnectivity", {"ci-controlplane", "ci-node"}, "ci-controlplane"),
    "azure": ("konnectivity_in", {"VirtualNetwork"}, "ci-nsg"),
    "gcp": ("ci-bootstrap-in-konnectivity", {"ci-worker", "ci-control-plane"}, "ci-control-plane"),
    "ibmcloud": ("ci-security-group-bootstrap", {"ci-sg-cluster-wide"}, "ci-security-group-bootstrap"),
    "powervs": ("ci-sg-control-plane", {"0.0.0.0/0"}, "ci-sg-control-plane"),
}


def test_a_rule_is_called_as_the_installer_calls_it() -> None:
    for name, expected in NAMES.items():
        rule = platform_of(name).rules(RuleRequest("ci", release=ReleaseLine(5, 0)))[0]
        assert (rule.name, {place.value for place in rule.sources}, rule.target.value) == expected
        assert (rule.port, rule.protocol) == (8091, "tcp")


def test_every_platform_of_the_list_is_known_by_an_installers_other_names_too() -> None:
    upi = {"aws-upi", "azure-upi", "gcp-upi", "openstack-upi"}
    own = {"vsphere", "nutanix", "baremetal", "none", "external"}
    assert set(PLATFORMS) == {"aws", "azure", "gcp", "ibmcloud", "powervs", "openstack"} | upi | own
    assert (platform_of("powervc").name, platform_of("ovirt").name) == ("openstack", "none")
    with pytest.raises(RenderError, match="known: aws, azure"):
        platform_of("nimbus")


def test_platforms_without_a_cloud_open_the_host_to_the_machine_networks() -> None:
    networks = ("10.0.0.0/16", "fd00::/64")
    for name in ("vsphere", "nutanix", "baremetal", "none", "external"):
        rule = platform_of(name).rules(RuleRequest(networks=tuple(map(parse_network, networks))))[0]
        assert rule.target == BOOTSTRAP_HOST
        assert [(place.kind, place.value) for place in rule.sources] == [
            (RuleSideKind.NETWORK, net) for net in networks
        ]


def test_every_platform_is_told_whole_and_open_to_known_networks_alone() -> None:
    request = RuleRequest("ci", networks=(parse_network("10.0.0.0/16"),), release=ReleaseLine(4, 18))
    for name, platform in PLATFORMS.items():
        sources = [place.kind for rule in platform.rules(request) for place in rule.sources]
        assert sources, name
        assert RuleSideKind.ANYWHERE not in sources, name
        # Leftovers are listed and removed without knowing more than the cluster.
        leftovers = platform.leftovers(RuleRequest("ci"))
        assert all((leftovers.show, leftovers.close, platform.removals, platform.made_by)), name
        assert platform.edit is not None or platform.why_no_edit, name
    assert [name for name, platform in PLATFORMS.items() if platform.leaks] == ["azure", "powervs"]


def test_the_document_has_every_platform_with_its_rule(repository: Path) -> None:
    rows = [line.split(" | ") for line in (repository / "docs" / "firewall.md").read_text().splitlines()]
    told = {name.strip("| "): cells[0] for name, *cells in rows if cells for name in name.split(", ")}
    assert set(PLATFORMS) <= set(told)
    for name, platform in PLATFORMS.items():
        assert platform.rule in told[name], name


def test_a_place_reads_as_kind_and_name() -> None:
    assert str(RuleSide(RuleSideKind.GROUP, "ci-node")) == "security group ci-node"
    assert str(ANYWHERE) == "anywhere"


def test_nobody_but_the_user_makes_or_removes_anything_and_our_table_is_left_over() -> None:
    platform = own_network("tin-can")
    assert [removal.by for removal in platform.removals] == [Remover.USER]
    assert [platform.commands, platform.blocks, platform.edit] == [None, None, None]
    assert leftovers(RuleRequest()).close[0].words == ("nft", "delete", "table", "inet", "umbilical_konnectivity")
    with pytest.raises(RenderError, match=r"UMB162(?s:.*)the rule for tin-can"):
        platform.rules(RuleRequest())


def test_what_a_user_types_wrong_is_refused_by_its_name() -> None:
    wrong: list[tuple[Callable[[Any], object], str, tuple[Any, ...]]] = [
        (RuleRequest, "infra id", ("x; rm -rf /", "A", "-x", "x-", "a b", "$(id)", "x" * 33, 'a"b', "ä", "x\n")),
        (partial(RuleRequest, "ci"), "port", (0, 22, 6443, 22623, 49152, 65536, -1)),
        (parse_release, "release", ("", "4", "four", "4.11", "4.18; id", "v4.18", "4.1888", "3.11")),
        (parse_network, "source", ("10.0.0.1/16", "10.0.0", "::/129", "", "10.0.0.0/16 any", "all")),
    ]
    for make, name, values in wrong:
        for value in values:
            with pytest.raises(RenderError, match=f"UMB160 {name}"):
                make(value)


def test_an_infra_id_of_an_installer_is_taken_and_needed_for_a_name() -> None:
    assert RuleRequest("mycluster-with-a-long-na-x7k2p").cluster("-nsg") == "mycluster-with-a-long-na-x7k2p-nsg"
    with pytest.raises(RenderError, match="the infra id is missing"):
        RuleRequest().cluster("-nsg")


@pytest.mark.parametrize(("text", "release"), [("4.18", (4, 18)), ("4.18.3", (4, 18)), ("5.0.0-ec.1", (5, 0))])
def test_a_release_is_read_from_a_whole_version(text: str, release: tuple[int, int]) -> None:
    assert parse_release(text) == ReleaseLine(*release)


def test_releases_have_an_order_and_an_unknown_one_counts_as_new() -> None:
    assert RuleRequest("ci", release=ReleaseLine(4, 9)).is_before(4, 16)
    assert not RuleRequest("ci", release=ReleaseLine(5, 0)).is_before(4, 16)
    assert not RuleRequest("ci").is_before(4, 16)


def test_a_single_address_is_a_network_of_one() -> None:
    assert str(parse_network("10.0.0.7")) == "10.0.0.7/32"
    assert str(parse_network("fd00::7")) == "fd00::7/128"


@given(st.text(max_size=40))
def test_any_text_is_an_infra_id_or_a_fault(text: str) -> None:
    if text == "" or INFRA_ID.fullmatch(text):
        assert RuleRequest(text).infra_id == text
    else:
        with pytest.raises(RenderError, match="UMB160"):
            RuleRequest(text)


@given(st.text(max_size=30))
def test_any_text_is_a_release_and_a_network_or_a_fault(text: str) -> None:
    for parse in (parse_release, parse_network):
        with contextlib.suppress(RenderError):
            assert str(parse(text))
