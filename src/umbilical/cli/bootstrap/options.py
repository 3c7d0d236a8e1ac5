"""The flags that describe a tunnel, the same for render, plan, patch and verify; and those that reach the machine.

A patch knows the options of an existing CA only to say why it cannot sign with one.
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
# What openshift-install itself takes the bootstrap node's address from.
INSTALLER_NODE_IP: Final = "OPENSHIFT_INSTALL_BOOTSTRAP_NODE_IP"


def node_ip(text: str) -> IpAddress | str:
    """Read `auto` or an address that other machines can dial."""
    if text == AUTO:
        return AUTO
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither {AUTO} nor an address, written without brackets") from None
    if "%" in text or address.is_unspecified or address.is_multicast or address.is_link_local:
        raise click.BadParameter(f"{text}: agents on other nodes cannot dial it")
    return address


def network(text: str) -> IpNetwork:
    """Read a network as install-config.yaml writes it."""
    try:
        # A zone is legal here for the library, and for nobody else.
        return ipaddress.ip_network(text.replace("%", "?"))
    except ValueError as fault:
        raise click.BadParameter(f"{text!r} is no network such as 10.0.0.0/16: {fault}") from None


def strategies(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


_SPEC: Final = (
    click.option(
        "--shape",
        type=click.Choice([shape.value for shape in Shape]),
        default=Shape.OPENSHIFT.value,
        show_default=True,
        help="Which tunnel: as the installer has it, as it was first planned, or beside a kube-apiserver static pod.",
    ),
    click.option(
        "--mode", type=click.Choice([mode.value for mode in Mode]), help="How kube-apiserver asks; the shape decides."
    ),
    click.option(
        "--image", metavar="REFERENCE", help="Image of both programs; else the payload's, which the node asks for."
    ),
    click.option("--namespace", metavar="NAME", help="Namespace of the agents; the shape decides."),
    click.option(
        "--node-ip",
        type=node_ip,
        metavar="auto|ADDRESS",
        help=f"What agents dial; auto finds it on the node.  [default: ${INSTALLER_NODE_IP}, else auto]",
    ),
    click.option(
        "--machine-network",
        "machine_networks",
        type=network,
        multiple=True,
        metavar="CIDR",
        help="Where auto looks for the address; the first one's family counts. May be given again.",
    ),
    click.option("--agent-port", type=int, default=8091, show_default=True, help="Where agents connect."),
    click.option("--health-port", type=int, default=2041, show_default=True, help="Health of server and agents."),
    click.option(
        "--strategies",
        type=strategies,
        metavar="LIST",
        default="destHost,defaultRoute",
        show_default=True,
        help=f"How the server picks an agent: {', '.join(STRATEGIES)}; in order.",
    ),
    click.option("--cpu", default=Resources.cpu, show_default=True, help="CPU that each pod requests."),
    click.option("--memory", default=Resources.memory, show_default=True, help="Memory that each pod requests."),
    click.option("--socket-dir", metavar="DIR", help="Directory of the socket on the host; the shape decides."),
    click.option(
        "--certificate-hours",
        type=int,
        default=MAX_CERTIFICATE_HOURS,
        show_default=True,
        help="How long certificates live.",
    ),
    click.option(
        "--host-network/--no-host-network",
        "host_network",
        default=None,
        help="Whether agents use the nodes' network; the shape decides.",
    ),
)


spec_options: Final = apply_options(_SPEC)


def spec_from(options: dict[str, Any]) -> TunnelSpec:
    """Turn the flags of `spec_options` into a spec. Raises RenderError: a value is unusable, or two conflict."""
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
    """Add them, out of sight of `--help`; `refuse_authority` takes them out again."""
    for name, spelling in _OPTIONS.items():
        command = click.option(spelling, name, is_flag=name in _FLAGS, hidden=True)(command)
    return command


def refuse_authority(options: dict[str, Any]) -> dict[str, Any]:
    """Give the other options back. Raises Fault: one of these was used."""
    used = [spelling for name, spelling in _OPTIONS.items() if options.get(name)]
    if used:
        raise Fault(
            "UMB130",
            f"a patch cannot sign with an existing CA ({', '.join(used)})",
            "the installer's root CA key never reaches the node, and a certificate of one day inside the config would"
            " keep the installer from loading it once it has expired",
            "leave them out: the node makes a CA for a day and throws its key away; render and pki take them",
        )
    return {name: value for name, value in options.items() if name not in _OPTIONS}


_NODE: Final = (
    click.option("--ssh-host", metavar="ADDRESS", help="The bootstrap machine; else what --dir knows of it."),
    click.option("--ssh-user", default="core", show_default=True, help="Who to be there."),
    click.option("--ssh-key", type=FILE, help="The key to use; else the installer's in --dir, else ssh's own choice."),
    click.option("--ssh-port", type=click.IntRange(1, 65535), default=22, show_default=True, help="Where sshd is."),
)
DIRECTORY: Final = click.Path(path_type=Path, file_okay=False)


node_options: Final = apply_options(_NODE)


def node_access(options: dict[str, Any]) -> "NodeAccess":
    """Turn the flags of `node_options` into one value."""
    from umbilical.bootstrap.node_access import NodeAccess

    return NodeAccess(options["ssh_host"], options["ssh_user"], options["ssh_key"], options["ssh_port"])
