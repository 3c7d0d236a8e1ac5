"""Platforms where the installer creates no firewall rules: only the user's network filters between nodes and bootstrap
machine. They differ in a remark."""

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

WHY_NO_EDIT: Final = "the installer creates no firewall rules on this platform"
BY_HAND: Final = RuleRemoval("all", Remover.USER, "close the port after `wait-for bootstrap-complete`")


def leftovers(_: RuleRequest) -> RuleCommands:
    """Rules of firewalld expire; our nftables table stays until it is deleted or the machine is."""
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
        made_by="nobody: your network must allow it",
        removals=(BY_HAND,),
        remarks=(*remarks, "Behind NAT the source is the translated address"),
        rules=rules,
        leftovers=leftovers,
        why_no_edit=WHY_NO_EDIT,
        is_host_filtered=True,
    )


BAREMETAL: Final = own_network(
    "baremetal",
    "The bootstrap machine is a VM on the host that runs the installer: check that host's filter too",
)


EXTERNAL: Final = own_network(
    "external",
    "If the provider has security groups, create the rule there: TCP to the port, nodes to the bootstrap machine",
)


NONE: Final = own_network(
    "none",
    "Also for agent-based installations without a platform; there a control-plane host is the bootstrap machine",
)


NUTANIX: Final = own_network(
    "nutanix",
    "A Flow security policy needs a separate rule: TCP to the port, nodes to the bootstrap machine",
)


VSPHERE: Final = own_network(
    "vsphere",
    "A distributed firewall (NSX) needs a separate rule: TCP to the port, nodes to the bootstrap machine",
)
