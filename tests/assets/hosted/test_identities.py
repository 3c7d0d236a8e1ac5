"""Which agent may announce what, as our server reads it."""

import ipaddress

from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted import names
from umbilical.assets.hosted.identities import identities_config_map, identities_text
from umbilical.assets.hosted.spec import AggregatedApi
from umbilical.konnectivity.identity import parse_agent_rules
from umbilical.konnectivity.metadata import AgentIdentifiers

NODE, CONTROL_PLANE = ["CN=konnectivity-agent"], ["CN=konnectivity-agent-control-plane"]


def test_an_agent_on_a_node_may_not_claim_the_address_of_an_aggregated_api() -> None:
    rules = parse_agent_rules(identities_text(hosted_spec()))
    assert rules.refusal(NODE, AgentIdentifiers(ipv4=("172.30.12.7",)))
    assert rules.refusal(CONTROL_PLANE, AgentIdentifiers(ipv4=("172.30.12.7",))) == ""


def test_the_control_plane_agent_may_not_claim_what_is_for_nodes() -> None:
    rules = parse_agent_rules(identities_text(hosted_spec()))
    assert rules.refusal(CONTROL_PLANE, AgentIdentifiers(default_route=True))
    assert rules.refusal(NODE, AgentIdentifiers(default_route=True)) == ""


def test_nobody_else_connects() -> None:
    rules = parse_agent_rules(identities_text(hosted_spec()))
    assert rules.refusal(["CN=konnectivity-client"], AgentIdentifiers())


def test_ipv6_addresses_are_named_as_such() -> None:
    api = AggregatedApi("a", (ipaddress.ip_address("fd00::5"), ipaddress.ip_address("172.30.0.1")))
    text = identities_text(hosted_spec(aggregated_apis=(api,)))
    assert text.splitlines()[1] == "CN=konnectivity-agent-control-plane ipv6=fd00::5 ipv4=172.30.0.1"


def test_without_an_address_only_agents_on_nodes_are_known() -> None:
    assert identities_text(hosted_spec(aggregated_apis=())) == "CN=konnectivity-agent default-route=true\n"


def test_the_rules_are_in_a_config_map_of_the_control_plane() -> None:
    found = identities_config_map(hosted_spec())
    assert found["metadata"]["namespace"] == "clusters-guest"
    assert list(found["data"]) == [names.IDENTITIES_KEY]
