"""OpenStack: one rule per machine network, in the bootstrap machine's group if it has one, else in the masters'."""

from typing import Final

from umbilical.fault import RenderError
from umbilical.firewall.platforms.platform import (
    FirewallRule,
    Platform,
    Reference,
    Remover,
    RuleCommands,
    RuleRemoval,
    RuleSide,
    RuleSideKind,
    TerraformBlock,
    ToolCommand,
)
from umbilical.firewall.platforms.request import RuleRequest

BOOTSTRAP_GROUP: Final = "-bootstrap"
MASTER_GROUP: Final = "-master"
DESCRIPTION: Final = "konnectivity"


def rules(request: RuleRequest) -> tuple[FirewallRule, ...]:
    if request.release is None:
        why = "the security group on openstack depends on it: from 4.21 on <infra-id>-bootstrap, else <infra-id>-master"
        raise RenderError("UMB160", "the release is missing", why, "add --release 4.NN")
    suffix = MASTER_GROUP if request.is_before(4, 21) else BOOTSTRAP_GROUP
    return group_rules(request, request.cluster(suffix), "openstack")


def group_rules(request: RuleRequest, group: str, platform: str) -> tuple[FirewallRule, ...]:
    target = RuleSide(RuleSideKind.GROUP, group)
    networks = request.named_networks(platform)
    places = [RuleSide(RuleSideKind.NETWORK, str(network)) for network in networks]
    return tuple(FirewallRule(group, request.port, (place,), target, DESCRIPTION) for place in places)


def commands(request: RuleRequest) -> RuleCommands:
    return group_commands(rules(request))


def leftovers(request: RuleRequest) -> RuleCommands:
    """The bootstrap machine's group, by the tags that the installer uses, and the rule in the masters' group."""
    tags = f"openshiftClusterID={request.cluster()},openshiftRole=bootstrap"
    groups = ("openstack", "security", "group", "list", "--tags", tags, "-f", "value", "-c", "ID")
    rule = rule_leftovers(request.cluster(MASTER_GROUP), request.port)
    delete = ("xargs", "-r", "openstack", "security", "group", "delete")
    return RuleCommands(
        close=(ToolCommand(groups, pipe=(delete,)), *rule.close),
        show=(ToolCommand((*groups, "-c", "Name")), *rule.show),
    )


def group_commands(wanted: tuple[FirewallRule, ...]) -> RuleCommands:
    made = rule_leftovers(wanted[0].target.value, wanted[0].port)
    return RuleCommands(open=tuple(ToolCommand(_create(rule)) for rule in wanted), close=made.close, show=made.show)


def rule_leftovers(group: str, port: int) -> RuleCommands:
    """Neutron's rules have no names: the commands find them by port."""
    listing = ("openstack", "security", "group", "rule", "list", group, "--ingress", "--protocol", "tcp", "-f", "json")
    chosen = f'.[] | select(."Port Range" == "{port}:{port}")'
    delete = ("xargs", "-r", "openstack", "security", "group", "rule", "delete")
    return RuleCommands(
        close=(ToolCommand(listing, pipe=(("jq", "-r", f"{chosen} | .ID"), delete)),),
        show=(ToolCommand(listing, pipe=(("jq", chosen),)),),
    )


def blocks(request: RuleRequest) -> tuple[TerraformBlock, ...]:
    return group_blocks(rules(request))


def group_blocks(wanted: tuple[FirewallRule, ...]) -> tuple[TerraformBlock, ...]:
    group = TerraformBlock("data", ("openstack_networking_secgroup_v2", "target"), {"name": wanted[0].target.value})
    return (group, *(_block(count, rule) for count, rule in enumerate(wanted)))


def _create(rule: FirewallRule) -> tuple[str, ...]:
    network = rule.sources[0].value
    return (
        *("openstack", "security", "group", "rule", "create", "--ingress", "--ethertype", _ether_type(network)),
        *("--protocol", "tcp", "--dst-port", str(rule.port), "--remote-ip", network),
        *("--description", rule.description, rule.target.value),
    )


def _block(count: int, rule: FirewallRule) -> TerraformBlock:
    network = rule.sources[0].value
    attributes = {
        "description": rule.description,
        "direction": "ingress",
        "ethertype": _ether_type(network),
        "protocol": "tcp",
        "port_range_min": rule.port,
        "port_range_max": rule.port,
        "remote_ip_prefix": network,
        "security_group_id": Reference("data.openstack_networking_secgroup_v2.target.id"),
    }
    return TerraformBlock("resource", ("openstack_networking_secgroup_rule_v2", f"konnectivity_{count}"), attributes)


def _ether_type(network: str) -> str:
    return "IPv6" if ":" in network else "IPv4"


PLATFORM: Final = Platform(
    name="openstack",
    rule=f"<infra-id>{BOOTSTRAP_GROUP}",
    source="machine networks",
    target=f"security group <infra-id>{BOOTSTRAP_GROUP}; <infra-id>{MASTER_GROUP} up to 4.20",
    made_by="the installer's code",
    removals=(
        RuleRemoval("4.21 and later", Remover.INSTALLER, "it deletes the whole group, found by its tags"),
        RuleRemoval("4.14 to 4.20", Remover.USER, "the rule is in the masters' group, which stays"),
    ),
    remarks=(
        "4.21 and 4.22: the group exists once the installation runs; add the rule with the CLI then",
        "PowerVC: the group is not deleted with the bootstrap machine",
    ),
    rules=rules,
    commands=commands,
    leftovers=leftovers,
    blocks=blocks,
    why_no_edit="the installer creates the groups in its own code; no manifest in cluster-api/ has their rules",
)


def upi_rules(request: RuleRequest) -> tuple[FirewallRule, ...]:
    return group_rules(request, request.cluster(MASTER_GROUP), "openstack-upi")


def upi_commands(request: RuleRequest) -> RuleCommands:
    return group_commands(upi_rules(request))


def upi_leftovers(request: RuleRequest) -> RuleCommands:
    return rule_leftovers(request.cluster(MASTER_GROUP), request.port)


def upi_blocks(request: RuleRequest) -> tuple[TerraformBlock, ...]:
    return group_blocks(upi_rules(request))


UPI_PLATFORM: Final = Platform(
    name="openstack-upi",
    rule=f"<infra-id>{MASTER_GROUP}",
    source="machine networks",
    target=f"security group <infra-id>{MASTER_GROUP}",
    made_by="nobody: the playbooks have no such rule",
    removals=(RuleRemoval("all", Remover.USER, "remove it after `wait-for bootstrap-complete`"),),
    rules=upi_rules,
    commands=upi_commands,
    leftovers=upi_leftovers,
    blocks=upi_blocks,
    why_no_edit="no Cluster API provider reads the manifests on UPI",
)
