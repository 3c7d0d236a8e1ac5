"""OpenStack with machines of the user's own: the playbooks put the bootstrap machine into the masters' group."""

from typing import Final

from umbilical.firewall.platforms.openstack import (
    MASTER_GROUP,
    group_blocks,
    group_commands,
    group_rules,
    rule_leftovers,
)
from umbilical.firewall.platforms.platform import Block, Commands, Platform, Removal, Remover, Rule
from umbilical.firewall.platforms.request import Request


def rules(request: Request) -> tuple[Rule, ...]:
    return group_rules(request, request.cluster(MASTER_GROUP), "openstack-upi")


def commands(request: Request) -> Commands:
    return group_commands(rules(request))


def leftovers(request: Request) -> Commands:
    return rule_leftovers(request.cluster(MASTER_GROUP), request.port)


def blocks(request: Request) -> tuple[Block, ...]:
    return group_blocks(rules(request))


PLATFORM: Final = Platform(
    name="openstack-upi",
    rule=f"<infra-id>{MASTER_GROUP}",
    source="machine networks",
    target=f"security group <infra-id>{MASTER_GROUP}",
    made_by="nobody: the playbooks have no such rule",
    removals=(Removal("all", Remover.USER, "remove it after `wait-for bootstrap-complete`"),),
    rules=rules,
    commands=commands,
    leftovers=leftovers,
    blocks=blocks,
    why_no_edit="with machines of your own no Cluster API provider reads the manifests",
)
