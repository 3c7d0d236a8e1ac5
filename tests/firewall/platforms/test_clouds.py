"""What is particular to each cloud: names, groups and sources of the rule, and what its forms leave open."""

import pytest

from umbilical.fault import RenderError
from umbilical.firewall.platforms import aws, azure, gcp, ibmcloud, openstack, powervs
from umbilical.firewall.platforms.platform import Named, Reference, ShellVariable, ToolCommand
from umbilical.firewall.platforms.request import ReleaseLine, RuleRequest, parse_network

CI = RuleRequest("ci")


def request(*networks: str, release: ReleaseLine | None = None) -> RuleRequest:
    return RuleRequest("ci", networks=tuple(parse_network(text) for text in networks), release=release)


def test_the_manifest_of_aws_names_roles_one_port_and_a_description_that_installers_sweep() -> None:
    item = aws.edit(RuleRequest("ci", 9191)).items[0]
    assert item["sourceSecurityGroupRoles"] == ["controlplane", "node"]
    assert (item["fromPort"], item["toPort"], item["protocol"]) == (9191, 9191, "tcp")
    for release in (None, ReleaseLine(4, 16), ReleaseLine(4, 22)):
        assert aws.edit(RuleRequest("ci", release=release)).items[0]["description"] == "Bootstrap SSH Access"
    assert aws.edit(RuleRequest("ci", release=ReleaseLine(4, 23))).items[0]["description"] == "Bootstrap Konnectivity"
    assert aws.rules(RuleRequest("ci", release=ReleaseLine(5, 1)))[0].description == "Bootstrap Konnectivity"


def test_a_rule_for_the_port_is_recognised_whatever_it_is_called() -> None:
    opens = aws.edit(CI).opens
    assert opens({"protocol": "tcp", "fromPort": 8091, "toPort": 8091, "description": "mine"})
    assert not opens({"protocol": "udp", "fromPort": 8091, "toPort": 8091})
    assert not opens({"protocol": "tcp", "fromPort": 22, "toPort": 22, "description": "Bootstrap SSH Access"})
    opens = azure.edit(CI).opens
    assert opens({"destinationPorts": "8091", "direction": "Inbound"})
    assert not opens({"destinationPorts": "8091", "direction": "Outbound"})
    assert not opens({"destinationPorts": "6443", "direction": "Inbound"})
    opens = ibmcloud.edit(CI).opens
    assert opens(ibmcloud.edit(CI).items[0])
    assert not opens({"action": "allow", "destination": {}})


def test_groups_and_tags_of_terraform_installers_have_other_names() -> None:
    assert aws.group_names(request(release=ReleaseLine(4, 15))) == ("ci-master-sg", "ci-worker-sg")
    assert aws.group_names(request(release=ReleaseLine(4, 16))) == ("ci-controlplane", "ci-node")
    rule = gcp.rules(request(release=ReleaseLine(4, 16)))[0]
    assert ([place.value for place in rule.sources], rule.target.value) == (["ci-worker", "ci-master"], "ci-master")


def test_closing_names_the_same_rule_as_opening() -> None:
    def permission(command: ToolCommand) -> tuple[object, ...]:
        return command.words[3 : command.words.index("--source-group") + 2]

    made = aws.commands(CI)
    assert [permission(command) for command in made.open] == [permission(command) for command in made.close]
    assert len({permission(command) for command in made.open}) == 2
    made = gcp.commands(CI)
    assert made.open[0].words[4] == made.close[0].words[4] == "ci-bootstrap-in-konnectivity"


def test_aws_by_hand_asks_for_both_groups_and_looks_nothing_up() -> None:
    commands = aws.upi_commands(CI)
    assert [need.variable for need in commands.needs] == ["control_plane", "node"]
    assert commands.prepare == ()
    assert {block.kind for block in aws.upi_blocks(CI)} == {"variable", "resource"}
    sources = aws.upi_rules(CI)[0].sources
    assert [place.value for place in sources] == ["MasterSecurityGroupId", "WorkerSecurityGroupId"]


def test_azure_lets_the_virtual_network_in_or_each_known_network_by_a_numbered_rule() -> None:
    (rule,) = azure.rules(CI)
    assert (rule.name, rule.priority, rule.sources[0].value) == ("konnectivity_in", 230, "VirtualNetwork")
    made = azure.rules(request("10.0.0.0/16", "fd00::/64", "10.1.0.0/16"))
    assert [(rule.name, rule.priority, rule.sources[0].value) for rule in made] == [
        ("konnectivity_in_ipv4_00", 100, "10.0.0.0/16"),
        ("konnectivity_in_ipv6_00", 110, "fd00::/64"),
        ("konnectivity_in_ipv4_01", 120, "10.1.0.0/16"),
    ]


def test_no_form_of_azures_rule_has_any_source_and_leftovers_are_found_by_both_names() -> None:
    for asked in (CI, request("10.0.0.0/16", "fd00::/64")):
        assert "*" not in {item["source"] for item in azure.edit(asked).items}
        for command in azure.commands(asked).open:
            words = [str(word) for word in command.words]
            assert words[words.index("--source-address-prefixes") + 1] != "*"
    shown = " ".join(str(word) for word in azure.leftovers(CI).show[0].words)
    # konnectivity_in and ci_konnectivity_in both contain it.
    assert "contains(name, 'konnectivity_in')" in shown


def test_azure_by_hand_asks_for_the_resource_group() -> None:
    for made in (azure.upi_commands(CI), azure.upi_leftovers(CI)):
        assert [need.variable for need in made.needs] == ["resource_group"]
        assert ShellVariable("resource_group") in made.close[0].words
    declared, rule = azure.upi_blocks(CI)
    assert declared.kind == "variable"
    assert (rule.attributes or {})["resource_group_name"] == Reference("var.resource_group")


def test_google_cloud_by_hand_opens_the_bootstrap_machine_alone_and_asks_for_the_network() -> None:
    rule = gcp.upi_rules(CI)[0]
    assert ([place.value for place in rule.sources], rule.target.value) == (["ci-worker", "ci-master"], "ci-bootstrap")
    assert [need.variable for need in gcp.upi_commands(CI).needs] == ["network"]
    assert gcp.upi_blocks(CI)[0].labels == ("network",)


def test_ibm_clouds_rule_lets_the_cluster_into_the_bootstrap_machines_own_group() -> None:
    edit = ibmcloud.edit(CI)
    assert ibmcloud.rules(CI)[0].target.value == "ci-security-group-bootstrap"
    assert Named("ci-security-group-bootstrap") in edit.path
    remotes = edit.items[0]["source"]["remotes"]
    assert remotes == [{"remoteType": "sg", "securityGroupName": "ci-sg-cluster-wide"}]


def test_openstacks_bootstrap_machine_has_its_own_group_from_4_21_on() -> None:
    for minor, group in ((20, "ci-master"), (21, "ci-bootstrap"), (22, "ci-bootstrap")):
        made = openstack.rules(request("10.0.0.0/16", release=ReleaseLine(4, minor)))
        assert {rule.target.value for rule in made} == {group}, minor
    with pytest.raises(RenderError, match="--release"):
        openstack.rules(request("10.0.0.0/16"))


def test_each_network_of_openstack_has_its_rule_and_its_family() -> None:
    asked = request("10.0.0.0/16", "fd00::/64", release=ReleaseLine(4, 21))
    families = [block.attributes["ethertype"] for block in openstack.blocks(asked)[1:] if block.attributes]
    assert families == ["IPv4", "IPv6"]
    assert [command.words[7] for command in openstack.commands(asked).open] == families


def test_openstack_by_hand_opens_the_masters_group_and_leftovers_are_looked_for_in_both() -> None:
    asked = request("10.0.0.0/16")
    assert openstack.upi_rules(asked)[0].target.value == "ci-master"
    assert openstack.upi_commands(asked).open[0].words[-1] == "ci-master"
    assert openstack.upi_blocks(asked)[0].attributes == {"name": "ci-master"}
    assert "ci-master" in openstack.upi_leftovers(asked).show[0].words
    words = [" ".join(str(word) for word in command.words) for command in openstack.leftovers(CI).show]
    assert "openshiftClusterID=ci,openshiftRole=bootstrap" in words[0]
    assert "ci-master" in words[1]


def test_powervs_is_as_narrow_as_each_form_allows() -> None:
    addresses = [{"remoteType": "address", "address": text} for text in ("10.0.0.4", "10.0.0.5")]
    assert powervs.edit(request("10.0.0.4", "10.0.0.5")).items[0]["source"]["remotes"] == addresses
    for networks in ((), ("10.0.0.0/24",), ("fd00::1",)):
        assert powervs.edit(request(*networks)).items[0]["source"]["remotes"] == [{"remoteType": "any"}]
    network = request("10.0.0.0/24")
    assert "10.0.0.0/24" in powervs.commands(network).open[0].words
    assert (powervs.blocks(network)[-1].attributes or {})["remote"] == "10.0.0.0/24"
    with pytest.raises(RenderError, match="UMB162"):
        powervs.commands(CI)
