"""Azure: one network security group on every subnet; its default rules already allow the virtual network."""

from collections.abc import Mapping
from typing import Any, Final

from umbilical.firewall.platforms.platform import Each as _Each
from umbilical.firewall.platforms.platform import (
    FirewallRule,
    ManifestEdit,
    Need,
    Platform,
    Reference,
    Remover,
    RuleCommands,
    RuleRemoval,
    RuleSide,
    RuleSideKind,
    ShellVariable,
    TerraformBlock,
    ToolCommand,
    Word,
)
from umbilical.firewall.platforms.request import ReleaseLine, RuleRequest

RULE: Final = "konnectivity_in"
# As in the installer: 230 for a single rule; from 100 in steps of ten for one rule per network.
PRIORITY: Final = 230
FIRST_PRIORITY: Final = 100
PRIORITY_STEP: Final = 10
VIRTUAL_NETWORK: Final = RuleSide(RuleSideKind.SERVICE_TAG, "VirtualNetwork")
DEFAULT_RULE: Final = (
    "The default rule AllowVnetInBound already allows the nodes: a rule is needed only if your own rules deny them"
)


def rules(request: RuleRequest) -> tuple[FirewallRule, ...]:
    """One rule for the whole virtual network, or one per known network, with the installer's names."""
    target = RuleSide(RuleSideKind.GROUP, request.cluster("-nsg"))
    text = "Konnectivity agents to the bootstrap machine"
    if not request.networks:
        return (FirewallRule(RULE, request.port, (VIRTUAL_NETWORK,), target, text, PRIORITY),)
    found, count = [], {4: 0, 6: 0}
    for position, network in enumerate(request.networks):
        name = f"{RULE}_ipv{network.version}_{count[network.version]:02d}"
        count[network.version] += 1
        place = RuleSide(RuleSideKind.NETWORK, str(network))
        priority = FIRST_PRIORITY + position * PRIORITY_STEP
        found.append(FirewallRule(name, request.port, (place,), target, text, priority))
    return tuple(found)


def commands(request: RuleRequest) -> RuleCommands:
    place = ("--resource-group", request.cluster("-rg"), "--nsg-name", request.cluster("-nsg"))
    return rule_commands(request, place)


def leftovers(request: RuleRequest) -> RuleCommands:
    return leftover_commands(("--resource-group", request.cluster("-rg"), "--nsg-name", request.cluster("-nsg")))


def leftover_commands(place: tuple[Word, ...]) -> RuleCommands:
    """Match part of the name: the rule itself, numbered ones, and the name that the installer looks for."""
    query = f"[?contains(name, '{RULE}')]"
    listing = ("az", "network", "nsg", "rule", "list", *place, "--query")
    delete = ("xargs", "-r", "-n", "1", "az", "network", "nsg", "rule", "delete", *place, "--name")
    return RuleCommands(
        close=(ToolCommand((*listing, f"{query}.name", "--output", "tsv"), pipe=(delete,)),),
        show=(ToolCommand((*listing, query, "--output", "table")),),
    )


def rule_commands(request: RuleRequest, place: tuple[Word, ...]) -> RuleCommands:
    wanted = rules(request)
    return RuleCommands(
        open=tuple(ToolCommand(("az", "network", "nsg", "rule", "create", *place, *_options(rule))) for rule in wanted),
        close=tuple(
            ToolCommand(("az", "network", "nsg", "rule", "delete", *place, "--name", rule.name)) for rule in wanted
        ),
    )


def blocks(request: RuleRequest) -> tuple[TerraformBlock, ...]:
    return rule_blocks(request, request.cluster("-rg"))


def rule_blocks(request: RuleRequest, resource_group: Any) -> tuple[TerraformBlock, ...]:
    return tuple(_block(rule, resource_group) for rule in rules(request))


def edit(request: RuleRequest) -> ManifestEdit:
    items = tuple(_item(rule) for rule in rules(request))

    def opens(rule: Mapping[str, Any]) -> bool:
        return rule.get("destinationPorts") == str(request.port) and rule.get("direction") == "Inbound"

    path = ("spec", "networkSpec", "subnets", _Each.ELEMENT, "securityGroup", "securityRules")
    return ManifestEdit("02_azure-cluster.yaml", "AzureCluster", path, items, opens)


def _options(rule: FirewallRule) -> tuple[str, ...]:
    return (
        *("--name", rule.name, "--priority", str(rule.priority), "--direction", "Inbound", "--access", "Allow"),
        *("--protocol", "Tcp", "--source-address-prefixes", rule.sources[0].value, "--source-port-ranges", "*"),
        *("--destination-address-prefixes", "*", "--destination-port-ranges", str(rule.port)),
        *("--description", rule.description),
    )


def _block(rule: FirewallRule, resource_group: Any) -> TerraformBlock:
    attributes = {
        "name": rule.name,
        "description": rule.description,
        "resource_group_name": resource_group,
        "network_security_group_name": rule.target.value,
        "priority": rule.priority,
        "direction": "Inbound",
        "access": "Allow",
        "protocol": "Tcp",
        "source_address_prefix": rule.sources[0].value,
        "source_port_range": "*",
        "destination_address_prefix": "*",
        "destination_port_range": str(rule.port),
    }
    return TerraformBlock("resource", ("azurerm_network_security_rule", rule.name), attributes)


def _item(rule: FirewallRule) -> dict[str, Any]:
    return {
        "action": "Allow",
        "description": rule.description,
        "destination": "*",
        "destinationPorts": str(rule.port),
        "direction": "Inbound",
        "name": rule.name,
        "priority": rule.priority,
        "protocol": "Tcp",
        "source": rule.sources[0].value,
        "sourcePorts": "*",
    }


PLATFORM: Final = Platform(
    name="azure",
    rule=RULE,
    source="virtual network, or machine networks",
    target="network security group <infra-id>-nsg",
    made_by="the installer, in 02_azure-cluster.yaml; from anywhere if the API is public",
    removals=(
        RuleRemoval(
            "4.23 and later",
            Remover.NOBODY,
            "the installer looks for <infra-id>_konnectivity_in, but the rule's name is konnectivity_in "
            "(read in its source, not reproduced)",
        ),
        RuleRemoval("4.14 to 4.22", Remover.USER, "the installer does not know the rule"),
    ),
    remarks=(
        DEFAULT_RULE,
        "In your own virtual network the installer does not change your groups: allow the port there by hand",
        "These rules pass a policy that denies rules with source any: each has a source",
    ),
    rules=rules,
    commands=commands,
    leftovers=leftovers,
    blocks=blocks,
    edit=edit,
    edit_since=ReleaseLine(4, 17),
)


RESOURCE_GROUP: Final = Need("resource_group", "the resource group of the cluster's network security group")


def upi_commands(request: RuleRequest) -> RuleCommands:
    place = ("--resource-group", ShellVariable(RESOURCE_GROUP.variable), "--nsg-name", request.cluster("-nsg"))
    made = rule_commands(request, place)
    return RuleCommands((RESOURCE_GROUP,), (), made.open, made.close)


def upi_leftovers(request: RuleRequest) -> RuleCommands:
    place = ("--resource-group", ShellVariable(RESOURCE_GROUP.variable), "--nsg-name", request.cluster("-nsg"))
    made = leftover_commands(place)
    return RuleCommands((RESOURCE_GROUP,), (), (), made.close, made.show)


def upi_blocks(request: RuleRequest) -> tuple[TerraformBlock, ...]:
    attributes = {"type": Reference("string"), "description": RESOURCE_GROUP.meaning}
    declared = TerraformBlock("variable", (RESOURCE_GROUP.variable,), attributes)
    return (declared, *rule_blocks(request, Reference(f"var.{RESOURCE_GROUP.variable}")))


UPI_PLATFORM: Final = Platform(
    name="azure-upi",
    rule=RULE,
    source="virtual network, or machine networks",
    target="network security group <infra-id>-nsg",
    made_by="nobody: the ARM templates have no such rule",
    removals=(RuleRemoval("all", Remover.USER, "remove it after `wait-for bootstrap-complete`"),),
    remarks=(DEFAULT_RULE,),
    rules=rules,
    commands=upi_commands,
    leftovers=upi_leftovers,
    blocks=upi_blocks,
    why_no_edit="no Cluster API provider reads the manifests on UPI",
)
