"""AWS: from the cluster's two security groups to the control plane's. On UPI it is the same rule between groups that
only the user can name."""

from collections.abc import Mapping
from typing import Any, Final

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
)
from umbilical.firewall.platforms.request import NATIVE_SINCE, ReleaseLine, RuleRequest

DESCRIPTION: Final = "Bootstrap Konnectivity"
# Installers 4.16 to 4.22 do not know the rule above. With the bootstrap machine they delete every rule with this
# description, whatever its port.
SWEPT_DESCRIPTION: Final = "Bootstrap SSH Access"
ROLES: Final = ("controlplane", "node")
REVOKED: Final = (
    "While the installer runs (4.16 and later), its Cluster API provider revokes rules of its groups that are not in "
    "its manifest: use -o capi there, and the CLI or Terraform only for your own groups"
)


def description(request: RuleRequest) -> str:
    is_native = request.release is not None and request.release >= NATIVE_SINCE
    return DESCRIPTION if is_native else SWEPT_DESCRIPTION


def rules(request: RuleRequest) -> tuple[FirewallRule, ...]:
    sources = tuple(RuleSide(RuleSideKind.GROUP, name) for name in group_names(request))
    text = description(request)
    return (FirewallRule(text, request.port, sources, sources[0], text),)


def group_names(request: RuleRequest) -> tuple[str, str]:
    """Return the groups of control plane and workers, named by Cluster API or, before 4.16, by Terraform."""
    if request.is_before(4, 16):
        return request.cluster("-master-sg"), request.cluster("-worker-sg")
    return request.cluster("-controlplane"), request.cluster("-node")


def commands(request: RuleRequest) -> RuleCommands:
    control_plane, node = group_names(request)
    prepare = (_group_id("control_plane", control_plane), _group_id("node", node))
    return group_commands(request, prepare)


def group_commands(request: RuleRequest, prepare: tuple[ToolCommand, ...] = ()) -> RuleCommands:
    """Open and close with the group ids in the shell variables `control_plane` and `node`."""
    group = ShellVariable("control_plane")
    port = ("--protocol", "tcp", "--port", str(request.port))
    opening, closing = [], []
    for source in ("control_plane", "node"):
        place = ("--group-id", group, *port, "--source-group", ShellVariable(source))
        tag = f"ResourceType=security-group-rule,Tags=[{{Key=Name,Value={DESCRIPTION}}}]"
        tags = ("--tag-specifications", tag)
        opening.append(ToolCommand(("aws", "ec2", "authorize-security-group-ingress", *place, *tags)))
        closing.append(ToolCommand(("aws", "ec2", "revoke-security-group-ingress", *place)))
    query = f"SecurityGroupRules[?FromPort==`{request.port}` && IsEgress==`false`]"
    of_group = ("--filters", ShellVariable(group.name, _GROUP_FILTER))
    listing = ("aws", "ec2", "describe-security-group-rules", *of_group, "--query", query, "--output", "table")
    return RuleCommands(prepare=prepare, open=tuple(opening), close=tuple(closing), show=(ToolCommand(listing),))


def blocks(request: RuleRequest) -> tuple[TerraformBlock, ...]:
    groups = zip(("control_plane", "node"), group_names(request), strict=True)
    found = tuple(TerraformBlock("data", ("aws_security_group", key), {"tags": {"Name": name}}) for key, name in groups)
    ids = {label: Reference(f"data.aws_security_group.{label}.id") for label in ("control_plane", "node")}
    return (*found, *ingress_blocks(request, ids))


def ingress_blocks(request: RuleRequest, ids: Mapping[str, Reference]) -> tuple[TerraformBlock, ...]:
    return tuple(
        TerraformBlock(
            "resource",
            ("aws_vpc_security_group_ingress_rule", f"konnectivity_from_{label}"),
            {
                "description": DESCRIPTION,
                "security_group_id": ids["control_plane"],
                "referenced_security_group_id": ids[label],
                "ip_protocol": "tcp",
                "from_port": request.port,
                "to_port": request.port,
            },
        )
        for label in ("control_plane", "node")
    )


def edit(request: RuleRequest) -> ManifestEdit:
    item = {
        "description": description(request),
        "fromPort": request.port,
        "protocol": "tcp",
        "sourceSecurityGroupRoles": list(ROLES),
        "toPort": request.port,
    }

    def opens(rule: Mapping[str, Any]) -> bool:
        return rule.get("protocol") == "tcp" and rule.get("fromPort") == rule.get("toPort") == request.port

    path = ("spec", "network", "additionalControlPlaneIngressRules")
    return ManifestEdit("02_infra-cluster.yaml", "AWSCluster", path, (item,), opens)


_GROUP_FILTER: Final = "Name=group-id,Values="


def _group_id(variable: str, name: str) -> ToolCommand:
    words = ("aws", "ec2", "describe-security-groups", "--filters", f"Name=tag:Name,Values={name}")
    return ToolCommand((*words, "--query", "SecurityGroups[0].GroupId", "--output", "text"), into=variable)


PLATFORM: Final = Platform(
    name="aws",
    rule=DESCRIPTION,
    source="security groups of roles controlplane, node",
    target="control-plane security group",
    made_by="the installer, in 02_infra-cluster.yaml",
    removals=(
        RuleRemoval("4.23 and later", Remover.INSTALLER, "it waits up to 15 minutes for that"),
        RuleRemoval(
            "4.16 to 4.22",
            Remover.INSTALLER,
            f"because -o capi describes the rule as {SWEPT_DESCRIPTION!r}; under any other description it stays",
        ),
        RuleRemoval("4.14 and 4.15", Remover.USER, "create and remove it with the CLI while the installation runs"),
    ),
    remarks=(REVOKED,),
    names_nodes=True,
    rules=rules,
    commands=commands,
    leftovers=commands,
    blocks=blocks,
    edit=edit,
    edit_since=ReleaseLine(4, 16),
)


NEEDS: Final = (
    Need("control_plane", "the id of the control plane's security group (stack output MasterSecurityGroupId)"),
    Need("node", "the id of the workers' security group (stack output WorkerSecurityGroupId)"),
)


def upi_rules(request: RuleRequest) -> tuple[FirewallRule, ...]:
    names = ("MasterSecurityGroupId", "WorkerSecurityGroupId")
    sources = tuple(RuleSide(RuleSideKind.GROUP, name) for name in names)
    return (FirewallRule(DESCRIPTION, request.port, sources, sources[0], DESCRIPTION),)


def upi_commands(request: RuleRequest) -> RuleCommands:
    made = group_commands(request)
    return RuleCommands(NEEDS, (), made.open, made.close, made.show)


def upi_blocks(request: RuleRequest) -> tuple[TerraformBlock, ...]:
    declared = tuple(
        TerraformBlock(
            "variable",
            (f"{need.variable}_security_group_id",),
            {"type": Reference("string"), "description": need.meaning},
        )
        for need in NEEDS
    )
    ids = {need.variable: Reference(f"var.{need.variable}_security_group_id") for need in NEEDS}
    return (*declared, *ingress_blocks(request, ids))


UPI_PLATFORM: Final = Platform(
    name="aws-upi",
    rule=DESCRIPTION,
    source="master and worker security groups",
    target="master security group",
    made_by="nobody: the CloudFormation templates have no such rule",
    removals=(RuleRemoval("all", Remover.USER, "remove it after `wait-for bootstrap-complete`"),),
    remarks=("Deleting the bootstrap stack leaves the rule: it is in the security stack's groups",),
    names_nodes=True,
    rules=upi_rules,
    commands=upi_commands,
    leftovers=upi_commands,
    blocks=upi_blocks,
    why_no_edit="no Cluster API provider reads the manifests on UPI",
)
