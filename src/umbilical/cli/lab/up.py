"""`umbilical lab up` and `umbilical lab down`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umbilical.cli.lab.options import chosen_directory, chosen_name, image_option, lab_options, program_options
from umbilical.cli.terminal import ProgressLine
from umbilical.fault import LabError

if TYPE_CHECKING:
    from umbilical.lab.lab import Lab, UpRequest
    from umbilical.lab.state import RunnerKind
    from umbilical.lab.topology import Topology


@click.command()
@lab_options
@click.option("--masters", type=click.IntRange(min=1), default=3, show_default=True, help="Number of masters.")
@click.option("--workers", type=click.IntRange(min=0), default=2, show_default=True, help="Number of worker nodes.")
@click.option(
    "--family",
    type=click.Choice(["ipv4", "ipv6", "dual"]),
    default="ipv4",
    show_default=True,
    help="IP family of nodes and pods.",
)
@click.option("--machine-network", metavar="CIDR[,CIDR]", help="Node network.  [default: 10.91.0.0/24, fd91::/64]")
@click.option("--pod-network", metavar="CIDR[,CIDR]", help="Pod network.  [default: 10.92.0.0/16, fd92::/48]")
@click.option("--service-network", metavar="CIDR[,CIDR]", help="Service network.  [default: 10.93.0.0/16, fd93::/112]")
@click.option(
    "--runner",
    type=click.Choice(["process", "kubelet"]),
    default="process",
    show_default=True,
    help="How pods run: as plain processes, or with kubelet and containerd (needs root).",
)
@click.option("--bare", is_flag=True, help="Create networks and nodes only; do not start the pod runner.")
@program_options
@image_option
def up(
    name: str,
    directory: Path | None,
    runner: str,
    bare: bool,
    bin_dir: Path | None,
    kubernetes_version: str | None,
    image: Path | None,
    **networks: Any,
) -> None:
    """Create a lab: networks and nodes that can run pods.

    The nodes are a bootstrap node, masters and workers. A static pod runs when its manifest is written to
    /etc/kubernetes/manifests of a node.
    """
    from umbilical.lab.lab import UpRequest
    from umbilical.lab.state import RunnerKind

    kind = RunnerKind(runner)
    _check_image(image, kind)
    request = UpRequest(
        directory=chosen_directory(name, directory),
        name=chosen_name(name, directory),
        topology=_topology(networks),
        runner=kind,
        binaries=_binaries(bin_dir, kubernetes_version, is_kubelet=kind is RunnerKind.KUBELET and not bare),
        image=image,
        with_parent=True,
    )
    with ProgressLine() as progress:
        lab = _bring_up(request, progress.show, bare=bare)
    _print_lab(lab, "" if directory is None and name == "lab" else _same_lab(name, directory))
    # Last, so that an interrupt or kill before this line leaves nothing behind.
    lab.stay()


def _check_image(image: Path | None, runner: "RunnerKind") -> None:
    """Raises UsageError: the runner runs no images; LabError: the archive was not read (UMB849)."""
    from umbilical.lab.kubelet.image_format import read_names
    from umbilical.lab.state import RunnerKind

    if image is None:
        return
    if runner is not RunnerKind.KUBELET:
        raise click.UsageError("--image needs --runner kubelet: processes run no images")
    read_names(image)


def _topology(networks: Mapping[str, Any]) -> "Topology":
    from umbilical.lab.topology import Family, plan_topology

    return plan_topology(**{**networks, "family": Family(networks["family"])})


def _binaries(bin_dir: Path | None, version: str | None, *, is_kubelet: bool) -> dict[str, Path]:
    """Find the programs that are needed, and those of the others that exist.

    The kubelet runner needs its own, a chosen version all of Kubernetes. Raises LabError: one is missing.
    """
    from umbilical.lab import binaries

    needed = binaries.find(binaries.KUBELET if is_kubelet or version else (), bin_dir, version)
    others = [*binaries.KUBELET, *binaries.KONNECTIVITY]
    found = [name for name in others if name not in needed and binaries.locate(name, bin_dir) is not None]
    return {**binaries.find(found, bin_dir), **needed}


def _bring_up(request: "UpRequest", show: Any, *, bare: bool) -> "Lab":
    """Create the lab; an error or interrupt on the way removes it again."""
    from umbilical.lab.lab import up as bring_up
    from umbilical.lab.runners import runner_of

    show("creating networks and nodes")
    lab = bring_up(request)
    try:
        for node in () if bare else request.topology.nodes:
            show(f"starting the pod runner on {node.name}")
            runner_of(lab).start(lab, node.name, None)
    except BaseException:
        show("removing the lab again")
        lab.down()
        raise
    return lab


def _same_lab(name: str, directory: Path | None) -> str:
    return f" --name {name}" if directory is None else f" --dir {directory}"


def _print_lab(lab: "Lab", option: str) -> None:
    how = "without root, in a user namespace" if lab.state.is_rootless else "as root"
    networks = ", ".join(str(network) for network in lab.topology.machine_networks)
    click.echo(f"{lab.state.name} is up: {len(lab.topology.nodes)} nodes on {networks}, {how}")
    click.echo(f"directory: {lab.directory.path}")
    for command in ("status", "shell bootstrap", "down"):
        click.echo(f"  umbilical lab {command}{option}")


@click.command()
@lab_options
@click.option("--all", "everyone", is_flag=True, help="Remove every lab in the default directory.")
def down(name: str, directory: Path | None, everyone: bool) -> None:
    """Remove a lab, or what a crash left of one.

    This ends its processes and deletes its namespaces, control groups and files.
    """
    from umbilical.lab.state import list_labs

    if everyone and directory is not None:
        raise click.UsageError("give either --all or --dir, not both")
    paths = list_labs() if everyone else [chosen_directory(name, directory)]
    faults = [fault for path in paths if (fault := _take_down(path)) is not None]
    if not paths:
        click.echo("no lab found")
    # Report after all were tried: one that fails must not keep the others.
    for fault in faults:
        raise fault


def _take_down(path: Path) -> "LabError | None":
    from umbilical.lab import lab

    try:
        click.echo(f"{path} removed" if lab.down(path) else f"no lab in {path}")
    except LabError as fault:
        return fault
    return None
