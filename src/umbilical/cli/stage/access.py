"""`umbilical stage kubectl`, `helm`, `shell`, `logs`, `load-image`: lead into a cluster, whose network is its own."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from umbilical.cli.options import ARCHIVE
from umbilical.cli.stage.cluster import directory_option, machines_for
from umbilical.fault import HardwayError

if TYPE_CHECKING:
    from umbilical.hardway.config.cluster import Cluster
    from umbilical.hardway.machines.interface import Machines

PASSING = {"ignore_unknown_options": True}
"""Options of the command to run are not ours."""


_arguments = click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[--] ARGUMENT...")


@click.command(context_settings={**PASSING, "allow_interspersed_args": False})
@directory_option
@_arguments
def kubectl(folder: Path, arguments: tuple[str, ...]) -> NoReturn:
    """Run kubectl as administrator, in the cluster's network.

    Example: umbilical stage kubectl --dir cluster -- get nodes. The exit status is that of kubectl. Files are those of
    this machine; `port-forward` opens its port on the node `host`: umbilical stage shell host -- curl URL.
    """
    _run_in_network(folder, "kubectl", arguments)


@click.command(context_settings={**PASSING, "allow_interspersed_args": False})
@directory_option
@_arguments
def helm(folder: Path, arguments: tuple[str, ...]) -> NoReturn:
    """Run helm as administrator, in the cluster's network.

    Example: umbilical stage helm --dir cluster -- install web ./web. The exit status is that of helm. Charts and helm's
    settings are those of this machine. A lab has no way to a registry or chart repository.
    """
    _run_in_network(folder, "helm", arguments)


def _run_in_network(folder: Path, name: str, arguments: tuple[str, ...]) -> NoReturn:
    from umbilical.hardway.config.cluster import MachinesKind
    from umbilical.hardway.workspace import kubeconfig_path
    from umbilical.lab import binaries

    if "--dir" in arguments[: arguments.index("--") if "--" in arguments else None]:
        raise click.UsageError(f"--dir comes before the arguments of {name}")
    cluster, machines = _open(folder)
    # Only a lab's programs are those of this machine.
    version = cluster.release.version if cluster.machines is MachinesKind.LAB else None
    program = binaries.find([name], version=version)[name]
    path = kubeconfig_path(folder.absolute(), cluster.networks.api_vip)
    if not path.is_file():
        why = f"{path} does not exist: no stage has reached the API"
        raise HardwayError("UMB770", "the cluster has no API yet", why, f"umbilical stage run --dir {folder}")
    machines.enter()
    os.execve(program, [name, *arguments], {**os.environ, "KUBECONFIG": str(path)})


@click.command(context_settings=PASSING)
@directory_option
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def shell(folder: Path, node: str, command: tuple[str, ...]) -> NoReturn:
    """Open a shell on NODE as root, or run COMMAND there.

    Example: umbilical stage shell master-0 --dir cluster -- ip route. The exit status is that of COMMAND. In a lab the
    node `host` has the load balancer and the DNS resolver.
    """
    cluster, machines = _open(folder)
    words = machines.shell(_node_id(cluster, node), command)
    os.execvp(words[0], words)


@click.command()
@directory_option
@click.argument("node")
@click.argument("program", required=False)
@click.option(
    "--tail", "lines", type=click.IntRange(0), default=100, show_default=True, help="Number of last lines to show."
)
@click.option("-f", "--follow", is_flag=True, help="Show new lines until Ctrl-C.")
def logs(folder: Path, node: str, program: str | None, lines: int, follow: bool) -> None:
    """Show the log of PROGRAM on NODE.

    PROGRAM is a service (kubelet, containerd) or a container (etcd, kube-apiserver); without it, list the programs that
    have a log.
    """
    from umbilical.hardway.node_logs import find_logs, log_command

    cluster, machines = _open(folder)
    node_id = _node_id(cluster, node)
    found = find_logs(machines, node_id)
    if program is None:
        width = max(map(len, found), default=0)
        click.echo("".join(f"{name:<{width}}  {path}\n" for name, path in found.items()), nl=False)
        return
    remedy = f"umbilical stage logs --dir {shlex.quote(str(folder))} {node_id}"
    command = log_command(machines.kind, found, program, lines, remedy, follows=follow)
    words = machines.shell(node_id, command)
    os.execvp(words[0], words)


@click.command()
@directory_option
@click.argument("file", type=ARCHIVE)
def load_image(folder: Path, file: Path) -> None:
    """Load an image archive onto all nodes that are on.

    FILE is an archive of `docker save` or `podman save`, or an OCI archive. Nodes that are installed later do not have
    the image. Only machines of a lab can load images.
    """
    from umbilical.hardway.machines.interface import Power

    cluster, machines = _open(folder)
    running = [node for node in cluster.nodes if machines.power(node.id) is Power.ON]
    if not running:
        why = f"none of the {len(cluster.nodes)} machines is on"
        raise HardwayError("UMB772", f"{file} was not loaded", why, f"umbilical stage run --dir {folder}")
    names: list[str] = []
    for node in running:
        names = machines.load_image(node.id, file.absolute())
        click.echo(f"{node.id}: {', '.join(names)}")
    if any(name.endswith(":latest") for name in names):
        told = "of images named :latest Kubernetes pulls a new copy, which fails here"
        click.echo(f"note: {told}: set imagePullPolicy: IfNotPresent", err=True)


def _open(folder: Path) -> "tuple[Cluster, Machines]":
    from umbilical.hardway.workspace import read_config

    cluster = read_config(folder).cluster
    return cluster, machines_for(cluster, folder.absolute())


def _node_id(cluster: "Cluster", name: str) -> str:
    """Find a node by its id or its name. Raises UsageError: there is none."""
    from umbilical.hardway.config.cluster import MachinesKind

    ids = {key: node.id for node in cluster.nodes for key in (node.id, node.name)}
    if cluster.machines is MachinesKind.LAB:
        from umbilical.lab.hardway.names import HOST

        ids[HOST] = HOST
    if name not in ids:
        raise click.UsageError(f"there is no node {name}; the nodes are {', '.join(dict.fromkeys(ids.values()))}")
    return ids[name]
