"""Platforms where nobody but the user's own network stands between nodes and bootstrap machine: the installer makes
machines and no rules. They differ in a remark."""

from typing import Final

from umbilical.firewall.forms.texts import TABLE
from umbilical.firewall.platforms.platform import (
    BOOTSTRAP_HOST,
    FirewallRule,
    Platform,
    Remover,
    RuleCommands,
    RuleRemoval,
    RuleSide,
    RuleSideKind,
    ToolCommand,
)
from umbilical.firewall.platforms.request import RuleRequest

WHY_NO_EDIT: Final = "the installer makes no firewall rules on this platform"
BY_HAND: Final = RuleRemoval("all", Remover.USER, "whoever opened it closes it after `wait-for bootstrap-complete`")


def leftovers(_: RuleRequest) -> RuleCommands:
    """Rules under firewalld end by themselves; a table of ours lives until it is deleted or the machine goes."""
    family, name = TABLE.split()
    table = ("table", family, name)
    return RuleCommands(close=(ToolCommand(("nft", "delete", *table)),), show=(ToolCommand(("nft", "list", *table)),))


def own_network(name: str, *remarks: str) -> Platform:
    def rules(request: RuleRequest) -> tuple[FirewallRule, ...]:
        places = tuple(RuleSide(RuleSideKind.NETWORK, str(network)) for network in request.named_networks(name))
        return (FirewallRule("konnectivity", request.port, places, BOOTSTRAP_HOST, "Konnectivity agents"),)

    return Platform(
        name=name,
        rule="-",
        source="machine networks, or nodes' addresses",
        target="the bootstrap machine",
        made_by="nobody: your network must let it through",
        removals=(BY_HAND,),
        remarks=(*remarks, "Behind a NAT the source is the address after translation"),
        rules=rules,
        leftovers=leftovers,
        why_no_edit=WHY_NO_EDIT,
        is_host_filtered=True,
    )


BAREMETAL: Final = own_network(
    "baremetal",
    "The bootstrap machine is a guest of the host that runs the installer: look at that host's filter too",
)


EXTERNAL: Final = own_network(
    "external",
    "Where the provider has security groups, make the rule there: TCP to the port, nodes to the bootstrap machine",
)


NONE: Final = own_network(
    "none",
    "Also for agent-based installs without a platform; there a control-plane host is the bootstrap machine",
)


NUTANIX: Final = own_network(
    "nutanix",
    "A Flow security policy needs a rule of its own: TCP to the port, nodes to the bootstrap machine",
)


VSPHERE: Final = own_network(
    "vsphere",
    "A distributed firewall (NSX) needs a rule of its own: TCP to the port, nodes to the bootstrap machine",
)
