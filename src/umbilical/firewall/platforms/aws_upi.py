"""AWS with machines of the user's own: the same rule between groups that only the user can name."""

from typing import Final

from umbilical.firewall.platforms.aws import DESCRIPTION, group_commands, ingress_blocks
from umbilical.firewall.platforms.platform import (
    Block,
    Commands,
    Need,
    Place,
    PlaceKind,
    Platform,
    Reference,
    Removal,
    Remover,
    Rule,
)
from umbilical.firewall.platforms.request import Request

NEEDS: Final = (
    Need("control_plane", "the id of the control plane's security group (stack output MasterSecurityGroupId)"),
    Need("node", "the id of the workers' security group (stack output WorkerSecurityGroupId)"),
)


def rules(request: Request) -> tuple[Rule, ...]:
    sources = (Place(PlaceKind.GROUP, "MasterSecurityGroupId"), Place(PlaceKind.GROUP, "WorkerSecurityGroupId"))
    return (Rule(DESCRIPTION, request.port, sources, sources[0], DESCRIPTION),)


def commands(request: Request) -> Commands:
    made = group_commands(request)
    return Commands(NEEDS, (), made.open, made.close, made.show)


def blocks(request: Request) -> tuple[Block, ...]:
    declared = tuple(
        Block(
            "variable",
            (f"{need.variable}_security_group_id",),
            {"type": Reference("string"), "description": need.meaning},
        )
        for need in NEEDS
    )
    ids = {need.variable: Reference(f"var.{need.variable}_security_group_id") for need in NEEDS}
    return (*declared, *ingress_blocks(request, ids))


PLATFORM: Final = Platform(
    name="aws-upi",
    rule=DESCRIPTION,
    source="master and worker security groups",
    target="master security group",
    made_by="nobody: the CloudFormation templates have no such rule",
    removals=(Removal("all", Remover.USER, "remove it after `wait-for bootstrap-complete`"),),
    remarks=("Deleting the bootstrap stack leaves the rule: it is in the security stack's groups",),
    names_nodes=True,
    rules=rules,
    commands=commands,
    leftovers=commands,
    blocks=blocks,
    why_no_edit="with machines of your own no Cluster API provider reads the manifests",
)
