"""Azure with machines of the user's own: the ARM templates' group, in a resource group that the user chose."""

from typing import Final

from umbilical.firewall.platforms.azure import (
    DEFAULT_RULE,
    RULE,
    leftover_commands,
    rule_blocks,
    rule_commands,
    rules,
)
from umbilical.firewall.platforms.platform import (
    Block,
    Commands,
    Need,
    Platform,
    Reference,
    Removal,
    Remover,
    Variable,
)
from umbilical.firewall.platforms.request import Request

RESOURCE_GROUP: Final = Need("resource_group", "the resource group of the cluster's network security group")


def commands(request: Request) -> Commands:
    place = ("--resource-group", Variable(RESOURCE_GROUP.variable), "--nsg-name", request.cluster("-nsg"))
    made = rule_commands(request, place)
    return Commands((RESOURCE_GROUP,), (), made.open, made.close)


def leftovers(request: Request) -> Commands:
    place = ("--resource-group", Variable(RESOURCE_GROUP.variable), "--nsg-name", request.cluster("-nsg"))
    made = leftover_commands(place)
    return Commands((RESOURCE_GROUP,), (), (), made.close, made.show)


def blocks(request: Request) -> tuple[Block, ...]:
    attributes = {"type": Reference("string"), "description": RESOURCE_GROUP.meaning}
    declared = Block("variable", (RESOURCE_GROUP.variable,), attributes)
    return (declared, *rule_blocks(request, Reference(f"var.{RESOURCE_GROUP.variable}")))


PLATFORM: Final = Platform(
    name="azure-upi",
    rule=RULE,
    source="virtual network, or machine networks",
    target="network security group <infra-id>-nsg",
    made_by="nobody: the ARM templates have no such rule",
    removals=(Removal("all", Remover.USER, "remove it after `wait-for bootstrap-complete`"),),
    remarks=(DEFAULT_RULE,),
    rules=rules,
    commands=commands,
    leftovers=leftovers,
    blocks=blocks,
    why_no_edit="with machines of your own no Cluster API provider reads the manifests",
)
