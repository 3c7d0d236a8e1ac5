"""Google Cloud with machines of the user's own: the templates give the bootstrap a tag that nothing else has."""

from typing import Final

from umbilical.firewall.platforms.gcp import RULE_SUFFIX, rule_block, rule_commands, tagged_rules
from umbilical.firewall.platforms.platform import (
    Block,
    Commands,
    Need,
    Platform,
    Reference,
    Removal,
    Remover,
    Rule,
    Variable,
)
from umbilical.firewall.platforms.request import Request

NETWORK: Final = Need("network", "the name of the cluster's network")


def rules(request: Request) -> tuple[Rule, ...]:
    return tagged_rules(request, ("-worker", "-master"), "-bootstrap")


def commands(request: Request) -> Commands:
    made = rule_commands(rules(request)[0], Variable(NETWORK.variable))
    return Commands((NETWORK,), (), made.open, made.close, made.show)


def blocks(request: Request) -> tuple[Block, ...]:
    declared = Block("variable", (NETWORK.variable,), {"type": Reference("string"), "description": NETWORK.meaning})
    return (declared, rule_block(rules(request)[0], Reference(f"var.{NETWORK.variable}")))


PLATFORM: Final = Platform(
    name="gcp-upi",
    rule=f"<infra-id>{RULE_SUFFIX}",
    source="tags <infra-id>-worker, -master",
    target="tag <infra-id>-bootstrap",
    made_by="nobody: the templates have no such rule",
    removals=(Removal("all", Remover.USER, "remove it after `wait-for bootstrap-complete`"),),
    remarks=("Machines without the templates' tags need sources and a target of your own",),
    names_nodes=True,
    rules=rules,
    commands=commands,
    leftovers=commands,
    blocks=blocks,
    why_no_edit="with machines of your own no Cluster API provider reads the manifests",
)
