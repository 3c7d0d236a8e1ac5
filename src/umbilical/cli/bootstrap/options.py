"""Options that describe a tunnel, shared by render, plan, patch and verify; and SSH options for the bootstrap machine.

`patch` accepts the options of an existing CA only to explain why it cannot sign with one.
"""

import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.bootstrap.spec import MAX_CERTIFICATE_HOURS, STRATEGIES, Mode, Resources, Shape, TunnelSpec, for_shape
from umbilical.cli.findings import apply_options
from umbilical.cli.options import FILE, Command
from umbilical.fault import Fault
from umbilical.manifests.objects import IpAddress, IpNetwork

if TYPE_CHECKING:
    from umbilical.bootstrap.node_access import NodeAccess

AUTO: Final = "auto"
# openshift-install reads the bootstrap node's address from this variable.
INSTALLER_NODE_IP: Final = "OPENSHIFT_INSTALL_BOOTSTRAP_NODE_IP"
_THIS_NETWORK: Final = ipaddress.ip_network("0.0.0.0/8")
_BROADCAST: Final = ipaddress.ip_address("255.255.255.255")


def node_ip(text: str) -> IpAddress | str:
    """Read `auto` or an address that other machines can dial."""
    if text == AUTO:
        return AUTO
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither {AUTO} nor an IP address (without brackets)") from None
    why = _why_not_dialled(address)
    if why is not None:
        raise click.BadParameter(f"agents on other nodes cannot dial {text}: {why}")
    return address


def _why_not_dialled(address: IpAddress) -> str | None:
    # Checked in this order: the library calls ::1 and mapped addresses reserved, too.
    kinds = {
        "it is a loopback address": address.is_loopback,
        "no machine has an address of 0.0.0.0/8": address.version == 4 and address in _THIS_NETWORK,
        "it is the unspecified address": address.is_unspecified,
        "it is a multicast address": address.is_multicast,
        "it is a link-local address": address.is_link_local,
        "it is the broadcast address": address == _BROADCAST,
        "it is reserved, or an IPv4 address in IPv6 form": address.is_reserved,
    }
    if getattr(address, "scope_id", None):
        return "it has a zone, which only one machine knows"
    return next((why for why, holds in kinds.items() if holds), None)


def network(text: str) -> IpNetwork:
    """Parse a network in the form of install-config.yaml."""
    try:
        # The library accepts a zone; no other reader does.
        return ipaddress.ip_network(text.replace("%", "?"))
    except ValueError as fault:
        raise click.BadParameter(f"{text!r} is not a network such as 10.0.0.0/16: {fault}") from None


def strategies(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


_SPEC: Final = (
    click.option(
        "--shape",
        type=click.Choice([shape.value for shape in Shape]),
        default=Shape.OPENSHIFT.value,
        show_default=True,
        help="Form of the tunnel: as in the installer, as in the first plan, or for a kube-apiserver static pod.",
    ),
    click.option(
        "--mode",
        type=click.Choice([mode.value for mode in Mode]),
        help="kube-apiserver's protocol; default depends on --shape.",
    ),
    click.option("--image", metavar="REFERENCE", help="Image of server and agents; default is the payload's."),
    click.option("--namespace", metavar="NAME", help="Namespace of the agents; default depends on --shape."),
    click.option(
        "--node-ip",
        type=node_ip,
        metavar="auto|ADDRESS",
        help=f"Address that agents dial; auto finds it on the node.  [default: ${INSTALLER_NODE_IP}, else auto]",
    ),
    click.option(
        "--machine-network",
        "machine_networks",
        type=network,
        multiple=True,
        metavar="CIDR",
        help="Network of the node's address, for --node-ip auto; repeatable. The first sets the IP family.",
    ),
    click.option("--agent-port", type=int, default=8091, show_default=True, help="TCP port of the server for agents."),
    click.option("--health-port", type=int, default=2041, show_default=True, help="Health port of server and agents."),
    click.option(
        "--strategies",
        type=strategies,
        metavar="LIST",
        default="destHost,defaultRoute",
        show_default=True,
        help=f"Strategies for choosing an agent, in order; of {', '.join(STRATEGIES)}.",
    ),
    click.option("--cpu", default=Resources.cpu, show_default=True, help="CPU request of each pod."),
    click.option("--memory", default=Resources.memory, show_default=True, help="Memory request of each pod."),
    click.option("--socket-dir", metavar="DIR", help="Host directory of the socket; default depends on --shape."),
    click.option(
        "--certificate-hours",
        type=int,
        default=MAX_CERTIFICATE_HOURS,
        show_default=True,
        help="Lifetime of the certificates in hours.",
    ),
    click.option(
        "--host-network/--no-host-network",
        "host_network",
        default=None,
        help="Run agents in the nodes' network; default depends on --shape.",
    ),
)


spec_options: Final = apply_options(_SPEC)


def spec_from(options: dict[str, Any]) -> TunnelSpec:
    """Build a spec from `spec_options`. Raises RenderError: a value is not valid, or two conflict."""
    networks: tuple[IpNetwork, ...] = options["machine_networks"]
    given = {
        "mode": Mode(options["mode"]) if options["mode"] else None,
        "namespace": options["namespace"],
        "host_network": options["host_network"],
        "socket_directory": options["socket_dir"],
    }
    return for_shape(
        Shape(options["shape"]),
        image=options["image"],
        node_ip=_chosen_node_ip(options["node_ip"]),
        use_ipv6=bool(networks) and networks[0].version == 6,
        machine_networks=networks,
        agent_port=options["agent_port"],
        health_port=options["health_port"],
        strategies=options["strategies"],
        resources=Resources(options["cpu"], options["memory"]),
        certificate_hours=options["certificate_hours"],
        **{name: value for name, value in given.items() if value is not None},
    )


def _chosen_node_ip(given: IpAddress | str | None) -> IpAddress | None:
    chosen = given if given is not None else _installers_node_ip()
    return None if isinstance(chosen, str) else chosen


def _installers_node_ip() -> IpAddress | str:
    text = os.environ.get(INSTALLER_NODE_IP, "")
    try:
        return node_ip(text) if text else AUTO
    except click.BadParameter as fault:
        raise click.UsageError(f"{INSTALLER_NODE_IP}: {fault.message}") from None


_OPTIONS: Final = {"ca_cert": "--ca-cert", "ca_key": "--ca-key", "from_install_state": "--from-install-state"}
_FLAGS: Final = frozenset({"from_install_state"})


def authority_options(command: Command) -> Command:
    """Add the options of an existing CA, hidden from `--help`; `refuse_authority` removes them."""
    for name, spelling in _OPTIONS.items():
        command = click.option(spelling, name, is_flag=name in _FLAGS, hidden=True)(command)
    return command


def refuse_authority(options: dict[str, Any]) -> dict[str, Any]:
    """Return the other options. Raises Fault: an option of an existing CA was used."""
    used = [spelling for name, spelling in _OPTIONS.items() if options.get(name)]
    if used:
        raise Fault(
            "UMB130",
            f"patch cannot sign with an existing CA ({', '.join(used)})",
            "the root CA key is not on the node; and the installer does not load a config with an expired certificate,"
            " which a certificate of one day soon is",
            f"remove {', '.join(used)}: the node creates its own CA for one day; render and pki accept these options",
        )
    return {name: value for name, value in options.items() if name not in _OPTIONS}


_NODE: Final = (
    click.option("--ssh-host", metavar="ADDRESS", help="Address of the bootstrap machine; default: from --dir."),
    click.option("--ssh-user", default="core", show_default=True, help="SSH user name."),
    click.option("--ssh-key", type=FILE, help="SSH key; default: the installer's key in --dir, else ssh's own."),
    click.option("--ssh-port", type=click.IntRange(1, 65535), default=22, show_default=True, help="SSH port."),
)
DIRECTORY: Final = click.Path(path_type=Path, file_okay=False)


node_options: Final = apply_options(_NODE)


def node_access(options: dict[str, Any]) -> "NodeAccess":
    from umbilical.bootstrap.node_access import NodeAccess

    return NodeAccess(options["ssh_host"], options["ssh_user"], options["ssh_key"], options["ssh_port"])
