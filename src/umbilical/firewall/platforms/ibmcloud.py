"""IBM Cloud: a security group that only the bootstrap machine has; the rule is deleted with the group."""

from collections.abc import Mapping
from typing import Any, Final

from umbilical.firewall.platforms.platform import (
    FirewallRule,
    ManifestEdit,
    Named,
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
from umbilical.firewall.platforms.request import ReleaseLine, RuleRequest

BOOTSTRAP_GROUP: Final = "-security-group-bootstrap"
CLUSTER_GROUP: Final = "-sg-cluster-wide"


def rules(request: RuleRequest) -> tuple[FirewallRule, ...]:
    source = RuleSide(RuleSideKind.GROUP, request.cluster(CLUSTER_GROUP))
    target = RuleSide(RuleSideKind.GROUP, request.cluster(BOOTSTRAP_GROUP))
    return (FirewallRule(target.value, request.port, (source,), target),)


def commands(request: RuleRequest) -> RuleCommands:
    rule = rules(request)[0]
    return group_commands(rule.target.value, (rule.sources[0].value,), rule.port)


def group_commands(group: str, remotes: tuple[str, ...], port: int) -> RuleCommands:
    """Rules of a VPC's groups have no names: the commands find them by port and delete them by id."""
    ports = ("--port-min", str(port), "--port-max", str(port))
    add = ("ibmcloud", "is", "security-group-rule-add", group, "inbound", "tcp", "--remote")
    rules_of_group = ("ibmcloud", "is", "security-group-rules", group, "--output", "JSON")
    chosen = f'.[] | select(.direction == "inbound" and .port_min == {port} and .port_max == {port})'
    delete = ("xargs", "-r", "-I{}", "ibmcloud", "is", "security-group-rule-delete", group, "{}", "--force")
    return RuleCommands(
        open=tuple(ToolCommand((*add, remote, *ports)) for remote in remotes),
        close=(ToolCommand(rules_of_group, pipe=(("jq", "-r", f"{chosen} | .id"), delete)),),
        show=(ToolCommand(rules_of_group, pipe=(("jq", chosen),)),),
    )


def blocks(request: RuleRequest) -> tuple[TerraformBlock, ...]:
    rule = rules(request)[0]
    found = tuple(
        TerraformBlock("data", ("ibm_is_security_group", label), {"name": name})
        for label, name in (("bootstrap", rule.target.value), ("cluster", rule.sources[0].value))
    )
    remote = Reference("data.ibm_is_security_group.cluster.id")
    return (*found, rule_block("konnectivity", Reference("data.ibm_is_security_group.bootstrap.id"), remote, rule.port))


def rule_block(label: str, group: Reference, remote: str | Reference, port: int) -> TerraformBlock:
    tcp = TerraformBlock("tcp", (), {"port_min": port, "port_max": port})
    attributes = {"group": group, "direction": "inbound", "remote": remote}
    return TerraformBlock("resource", ("ibm_is_security_group_rule", label), attributes, (tcp,))


def edit(request: RuleRequest) -> ManifestEdit:
    rule = rules(request)[0]
    remotes = [{"remoteType": "sg", "securityGroupName": rule.sources[0].value}]
    path = ("spec", "network", "securityGroups", Named(rule.target.value), "rules")
    return group_edit("01_ibmcloud-cluster.yaml", "IBMVPCCluster", path, remotes, rule.port)


def group_edit(file: str, kind: str, path: tuple[Any, ...], remotes: list[dict[str, str]], port: int) -> ManifestEdit:
    ports = {"maximumPort": port, "minimumPort": port}
    source = {"portRange": ports, "protocol": "tcp", "remotes": remotes}
    item = {"action": "allow", "direction": "inbound", "source": source}

    def opens(rule: Mapping[str, Any]) -> bool:
        found = rule.get("source")
        return isinstance(found, Mapping) and found.get("portRange") == ports and found.get("protocol") == "tcp"

    return ManifestEdit(file, kind, path, (item,), opens)


PLATFORM: Final = Platform(
    name="ibmcloud",
    rule=f"<infra-id>{BOOTSTRAP_GROUP}",
    source=f"security group <infra-id>{CLUSTER_GROUP}",
    target=f"security group <infra-id>{BOOTSTRAP_GROUP}",
    made_by="the installer, in 01_ibmcloud-cluster.yaml",
    removals=(
        RuleRemoval("4.19 and later", Remover.INSTALLER, "it deletes the whole group"),
        RuleRemoval("4.14 to 4.18", Remover.USER, "create and remove it with the CLI while the installation runs"),
    ),
    remarks=("Manifests for Cluster API exist from 4.19 on; before only with a feature gate",),
    names_nodes=True,
    rules=rules,
    commands=commands,
    leftovers=commands,
    blocks=blocks,
    edit=edit,
    edit_since=ReleaseLine(4, 19),
)
