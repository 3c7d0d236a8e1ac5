"""Google Cloud: a separate firewall rule between network tags, created by the installer's code, not by a manifest."""

from typing import Any, Final

from umbilical.firewall.platforms.platform import (
    FirewallRule,
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
from umbilical.firewall.platforms.request import RuleRequest

RULE_SUFFIX: Final = "-bootstrap-in-konnectivity"


def rules(request: RuleRequest) -> tuple[FirewallRule, ...]:
    # Installers with Terraform tag the control plane `-master`.
    control_plane = "-master" if request.is_before(4, 17) else "-control-plane"
    return tagged_rules(request, ("-worker", control_plane), control_plane)


def tagged_rules(request: RuleRequest, sources: tuple[str, ...], target: str) -> tuple[FirewallRule, ...]:
    places = tuple(RuleSide(RuleSideKind.TAG, request.cluster(suffix)) for suffix in sources)
    text = "Konnectivity agents to the bootstrap machine"
    name = request.cluster(RULE_SUFFIX)
    return (FirewallRule(name, request.port, places, RuleSide(RuleSideKind.TAG, request.cluster(target)), text),)


def commands(request: RuleRequest) -> RuleCommands:
    return rule_commands(rules(request)[0], request.cluster("-network"))


def rule_commands(rule: FirewallRule, network: Word) -> RuleCommands:
    tags = ",".join(place.value for place in rule.sources)
    create: tuple[Word, ...] = (
        *("gcloud", "compute", "firewall-rules", "create", rule.name, "--network", network),
        *("--direction", "INGRESS", "--allow", f"tcp:{rule.port}"),
        *("--source-tags", tags, "--target-tags", rule.target.value, "--description", rule.description),
    )
    listing = ("gcloud", "compute", "firewall-rules", "list", "--filter", f"name={rule.name}")
    delete = ("gcloud", "compute", "firewall-rules", "delete", rule.name, "--quiet")
    return RuleCommands(open=(ToolCommand(create),), close=(ToolCommand(delete),), show=(ToolCommand(listing),))


def blocks(request: RuleRequest) -> tuple[TerraformBlock, ...]:
    return (rule_block(rules(request)[0], request.cluster("-network")),)


def rule_block(rule: FirewallRule, network: str | Reference) -> TerraformBlock:
    attributes: dict[str, Any] = {
        "name": rule.name,
        "description": rule.description,
        "network": network,
        "direction": "INGRESS",
        "source_tags": [place.value for place in rule.sources],
        "target_tags": [rule.target.value],
    }
    allow = TerraformBlock("allow", (), {"protocol": "tcp", "ports": [str(rule.port)]})
    return TerraformBlock("resource", ("google_compute_firewall", "konnectivity"), attributes, (allow,))


PLATFORM: Final = Platform(
    name="gcp",
    rule=f"<infra-id>{RULE_SUFFIX}",
    source="tags <infra-id>-worker, -control-plane",
    target="tag <infra-id>-control-plane",
    made_by="the installer's code, in the network's project",
    removals=(
        RuleRemoval("4.23 and later", Remover.INSTALLER, "not if firewall rules are Unmanaged"),
        RuleRemoval("4.14 to 4.22", Remover.USER, "the installer does not know the rule"),
    ),
    remarks=(
        "4.17 and later: during the bootstrap allow-<infra-id>-cluster already allows control-plane machines",
        "That rule does not allow workers; one agent on the control plane is enough for the tunnel",
        "A shared network does not have that rule, and its firewall belongs to the host project: add --project there",
    ),
    names_nodes=True,
    rules=rules,
    commands=commands,
    leftovers=commands,
    blocks=blocks,
    why_no_edit="the installer creates firewall rules in its own code; no manifest in cluster-api/ has them",
)


NETWORK: Final = Need("network", "the name of the cluster's network")


def upi_rules(request: RuleRequest) -> tuple[FirewallRule, ...]:
    return tagged_rules(request, ("-worker", "-master"), "-bootstrap")


def upi_commands(request: RuleRequest) -> RuleCommands:
    made = rule_commands(upi_rules(request)[0], ShellVariable(NETWORK.variable))
    return RuleCommands((NETWORK,), (), made.open, made.close, made.show)


def upi_blocks(request: RuleRequest) -> tuple[TerraformBlock, ...]:
    declared = TerraformBlock(
        "variable", (NETWORK.variable,), {"type": Reference("string"), "description": NETWORK.meaning}
    )
    return (declared, rule_block(upi_rules(request)[0], Reference(f"var.{NETWORK.variable}")))


UPI_PLATFORM: Final = Platform(
    name="gcp-upi",
    rule=f"<infra-id>{RULE_SUFFIX}",
    source="tags <infra-id>-worker, -master",
    target="tag <infra-id>-bootstrap",
    made_by="nobody: the templates have no such rule",
    removals=(RuleRemoval("all", Remover.USER, "remove it after `wait-for bootstrap-complete`"),),
    remarks=("For machines without the templates' tags, replace the source and target tags",),
    names_nodes=True,
    rules=upi_rules,
    commands=upi_commands,
    leftovers=upi_commands,
    blocks=upi_blocks,
    why_no_edit="no Cluster API provider reads the manifests on UPI",
)
