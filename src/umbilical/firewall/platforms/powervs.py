"""PowerVS: the control plane's group in the VPC. The installer opens it to everyone and never closes it."""

from typing import Final

from umbilical.firewall.platforms.ibmcloud import group_commands, group_edit, rule_block
from umbilical.firewall.platforms.platform import (
    ANYWHERE,
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
)
from umbilical.firewall.platforms.request import ReleaseLine, RuleRequest

GROUP: Final = "-sg-control-plane"


def rules(request: RuleRequest) -> tuple[FirewallRule, ...]:
    places = tuple(RuleSide(RuleSideKind.NETWORK, str(network)) for network in request.networks)
    target = RuleSide(RuleSideKind.GROUP, request.cluster(GROUP))
    return (FirewallRule(target.value, request.port, places or (ANYWHERE,), target),)


def commands(request: RuleRequest) -> RuleCommands:
    return group_commands(request.cluster(GROUP), _networks(request), request.port)


def leftovers(request: RuleRequest) -> RuleCommands:
    return group_commands(request.cluster(GROUP), (), request.port)


def blocks(request: RuleRequest) -> tuple[TerraformBlock, ...]:
    group = TerraformBlock("data", ("ibm_is_security_group", "control_plane"), {"name": request.cluster(GROUP)})
    target = Reference("data.ibm_is_security_group.control_plane.id")
    made = enumerate(_networks(request))
    return (group, *(rule_block(f"konnectivity_{count}", target, network, request.port) for count, network in made))


def edit(request: RuleRequest) -> ManifestEdit:
    path = ("spec", "vpcSecurityGroups", Named(request.cluster(GROUP)), "rules")
    return group_edit("02_powervs-cluster.yaml", "IBMPowerVSCluster", path, _remotes(request), request.port)


def _networks(request: RuleRequest) -> tuple[str, ...]:
    return tuple(str(network) for network in request.named_networks("powervs"))


def _remotes(request: RuleRequest) -> list[dict[str, str]]:
    """The manifest can name subnets of the VPC, groups and single addresses, but not the nodes' networks."""
    are_hosts = all(network.version == 4 and network.num_addresses == 1 for network in request.networks)
    if not request.networks or not are_hosts:
        return [{"remoteType": "any"}]
    return [{"remoteType": "address", "address": str(network.network_address)} for network in request.networks]


PLATFORM: Final = Platform(
    name="powervs",
    rule=f"<infra-id>{GROUP}",
    source="machine networks; anywhere by manifest",
    target=f"security group <infra-id>{GROUP}",
    made_by="the installer, in 02_powervs-cluster.yaml, from anywhere",
    removals=(
        RuleRemoval("4.23 and later", Remover.NOBODY, "the installer has no cleanup for it"),
        RuleRemoval("4.14 to 4.22", Remover.USER, "the installer does not know the rule"),
    ),
    remarks=(
        "The manifest cannot name the nodes' network: -o capi opens it to everyone, unless --source gives addresses",
        "-o cli and -o terraform allow only the machine networks",
    ),
    rules=rules,
    commands=commands,
    leftovers=leftovers,
    blocks=blocks,
    edit=edit,
    edit_since=ReleaseLine(4, 17),
)
