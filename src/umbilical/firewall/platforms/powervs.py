"""PowerVS: the control plane's group in the VPC. The installer opens it to everybody and never closes it."""

from typing import Final

from umbilical.firewall.platforms.ibmcloud import group_commands, group_edit, rule_block
from umbilical.firewall.platforms.platform import (
    ANYWHERE,
    Block,
    Commands,
    ManifestEdit,
    Named,
    Place,
    PlaceKind,
    Platform,
    Reference,
    Removal,
    Remover,
    Rule,
)
from umbilical.firewall.platforms.request import Release, Request

GROUP: Final = "-sg-control-plane"


def rules(request: Request) -> tuple[Rule, ...]:
    places = tuple(Place(PlaceKind.NETWORK, str(network)) for network in request.networks)
    target = Place(PlaceKind.GROUP, request.cluster(GROUP))
    return (Rule(target.value, request.port, places or (ANYWHERE,), target),)


def commands(request: Request) -> Commands:
    return group_commands(request.cluster(GROUP), _networks(request), request.port)


def leftovers(request: Request) -> Commands:
    return group_commands(request.cluster(GROUP), (), request.port)


def blocks(request: Request) -> tuple[Block, ...]:
    group = Block("data", ("ibm_is_security_group", "control_plane"), {"name": request.cluster(GROUP)})
    target = Reference("data.ibm_is_security_group.control_plane.id")
    made = enumerate(_networks(request))
    return (group, *(rule_block(f"konnectivity_{count}", target, network, request.port) for count, network in made))


def edit(request: Request) -> ManifestEdit:
    path = ("spec", "vpcSecurityGroups", Named(request.cluster(GROUP)), "rules")
    return group_edit("02_powervs-cluster.yaml", "IBMPowerVSCluster", path, _remotes(request), request.port)


def _networks(request: Request) -> tuple[str, ...]:
    return tuple(str(network) for network in request.named_networks("powervs"))


def _remotes(request: Request) -> list[dict[str, str]]:
    """The manifest can name subnets of the VPC, groups and single addresses, but no networks of the nodes'."""
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
        Removal("4.23 and later", Remover.NOBODY, "the installer has no cleanup for it"),
        Removal("4.14 to 4.22", Remover.USER, "the installer does not know the rule"),
    ),
    remarks=(
        "The manifest cannot name the nodes' network: -o capi opens to everybody, but for single addresses by --source",
        "-o cli and -o terraform keep to the machine networks",
    ),
    rules=rules,
    commands=commands,
    leftovers=leftovers,
    blocks=blocks,
    edit=edit,
    edit_since=Release(4, 17),
)
