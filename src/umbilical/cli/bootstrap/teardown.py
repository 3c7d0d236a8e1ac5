"""`umbilical bootstrap teardown`: deletes the tunnel's objects in the cluster and its files on the machine."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umbilical.checks.report import API_VERSION, printable
from umbilical.cli.bootstrap.options import DIRECTORY, node_access, node_options
from umbilical.cli.findings import output_option
from umbilical.cli.options import FILE, duration
from umbilical.cli.terminal import ProgressLine
from umbilical.codes import CONFIGURATION, FINDINGS, INFRASTRUCTURE, TIMED_OUT
from umbilical.fault import BootstrapError, ClusterError, Fault, HostError

if TYPE_CHECKING:
    from umbilical.bootstrap.install_dir import InstallDir
    from umbilical.bootstrap.node_access import CleanedFile
    from umbilical.bootstrap.teardown import TeardownProgress, TeardownReport


@dataclass
class TeardownOutcome:
    """The results of both parts, cluster and machine."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)
    """One per object: name, state, detail."""
    files: list[tuple[str, str, str]] = field(default_factory=list)
    warnings: list[Fault] = field(default_factory=list)
    statuses: set[int] = field(default_factory=set)

    @property
    def exit_status(self) -> int:
        """The most severe status: a failed connection first, then a timeout, then objects or files that remain."""
        order = (INFRASTRUCTURE, CONFIGURATION, TIMED_OUT, FINDINGS)
        return next((status for status in order if status in self.statuses), 0)


@click.command()
@click.option("--kubeconfig", type=FILE, help="Kubeconfig of the cluster; default: auth/kubeconfig of --dir.")
@click.option("--dir", "directory", type=DIRECTORY, help="Install directory; gives kubeconfig, machine and SSH key.")
@click.option(
    "--shape",
    type=click.Choice(["openshift", "seed", "auto"]),
    default="auto",
    show_default=True,
    help="Which objects to delete: seed selects them in kube-system by name, the others by label.",
)
@click.option("--namespace", "-n", metavar="NAME", help="Namespace of the agents; default depends on --shape.")
@click.option(
    "--dry-run",
    type=click.Choice(["none", "client", "server"]),
    default="none",
    show_default=True,
    help="Change nothing: client lists what would be deleted, server lets the API validate it.",
)
@click.option("--timeout", type=duration, default="5m", show_default=True, help="How long to wait for the deletion.")
@click.option("--no-wait", is_flag=True, help="Request the deletion and do not wait for it.")
@click.option("--local", is_flag=True, help="Remove files here: this is the bootstrap machine.")
@click.option("--root", type=DIRECTORY, default=Path("/"), help="Mount point of its root file system, with --local.")
@click.option("--no-node", is_flag=True, help="Skip the bootstrap machine, for instance if it no longer exists.")
@node_options
@output_option("table", "json")
def teardown(**options: Any) -> int:
    """Delete the tunnel's objects and its files on the node.

    Objects: DaemonSet, Secret and Namespace with the label openshift.io/bootstrap-only=true; with --shape seed two
    objects by name. Files on the bootstrap machine: static pod, socket and keys.
    """
    _check(options)
    directory = _install_dir(options["directory"])
    outcome = TeardownOutcome()
    kubeconfig = options["kubeconfig"] or (directory.kubeconfig if directory else None)
    if kubeconfig is not None:
        _clean_cluster(kubeconfig, options, outcome)
    _clean_machine(directory, options, outcome)
    _print(outcome, options)
    return outcome.exit_status


def _check(options: dict[str, Any]) -> None:
    if options["local"] and (options["ssh_host"] or options["no_node"]):
        raise click.UsageError("--local cannot be combined with --ssh-host or --no-node")
    if options["root"] != Path("/") and not options["local"]:
        raise click.UsageError("--root needs --local")
    if not any(options[name] for name in ("kubeconfig", "directory", "local", "ssh_host")):
        raise click.UsageError("give at least one of --kubeconfig, --dir, --local and --ssh-host")


def _install_dir(path: Path | None) -> "InstallDir | None":
    from umbilical.bootstrap.install_dir import InstallDir

    return None if path is None else InstallDir(path)


def _clean_cluster(kubeconfig: Path, options: dict[str, Any], outcome: TeardownOutcome) -> None:
    import asyncio

    try:
        report = asyncio.run(_torn_down(kubeconfig, options))
    except ClusterError as fault:
        _warn(outcome, fault, fault.exit_status)
        return
    outcome.rows += [(step.subject, step.state.value, step.detail) for step in report.steps]
    outcome.warnings += report.warnings
    if report.timed_out:
        outcome.statuses.add(TIMED_OUT)
    if not report.is_complete:
        outcome.statuses.add(FINDINGS)


async def _torn_down(kubeconfig: Path, options: dict[str, Any]) -> "TeardownReport":
    from umbilical.bootstrap.teardown import DryRun, TeardownOptions, tear_down
    from umbilical.bootstrap.teardown_targets import TeardownScope
    from umbilical.cluster.client import ClientClock, make_client

    chosen = TeardownOptions(
        TeardownScope(options["shape"]),
        options["namespace"],
        DryRun(options["dry_run"]),
        0.0 if options["no_wait"] else options["timeout"],
    )
    async with make_client(kubeconfig) as client:
        with ProgressLine() as line:
            return await tear_down(client, chosen, ClientClock(), lambda progress: line.show(_waiting(progress)))


def _waiting(progress: "TeardownProgress") -> str:
    until = progress.deadline.astimezone().strftime("%H:%M:%S %Z")
    held = ", ".join(f"{name} ({why})" for name, why in progress.remaining.items())
    return printable(f"waiting until {until} for {held}")


def _clean_machine(directory: "InstallDir | None", options: dict[str, Any], outcome: TeardownOutcome) -> None:
    try:
        cleaned = _cleaned_files(directory, options)
    except BootstrapError as fault:
        if fault.code == "UMB172" and not options["ssh_host"]:
            # Not an error: older installers and several platforms do not record the machine's address.
            click.echo(f"the bootstrap machine was skipped: {fault.why}", err=True)
            return
        _warn(outcome, fault, FINDINGS)
        return
    except HostError as fault:
        remedy = f"{fault.remedy}; if the machine no longer exists, add --no-node"
        _warn(outcome, BootstrapError("UMB610", fault.what, fault.why, remedy), FINDINGS)
        return
    outcome.files += [(file.path, file.state.value, file.detail) for file in cleaned]
    _warn_of_failed_files(cleaned, outcome)


def _cleaned_files(directory: "InstallDir | None", options: dict[str, Any]) -> "list[CleanedFile]":
    from umbilical.bootstrap.node_access import clean_node, node_runner
    from umbilical.host.commands import LocalRunner

    is_dry = options["dry_run"] != "none"
    if options["no_node"]:
        return []
    if options["local"]:
        return clean_node(LocalRunner(), str(options["root"]), dry_run=is_dry)
    with node_runner(node_access(options), directory) as runner:
        return [] if runner is None else clean_node(runner, dry_run=is_dry)


def _warn_of_failed_files(cleaned: "list[CleanedFile]", outcome: TeardownOutcome) -> None:
    from umbilical.bootstrap.node_access import FileState

    bad = [file for file in cleaned if file.state is FileState.FAILED]
    if bad:
        why = "; ".join(f"{file.path}: {file.detail}" for file in bad)
        remedy = f"remove them by hand, keys are among them: rm -rf {' '.join(file.path for file in bad)}"
        fault = BootstrapError("UMB610", "files on the bootstrap machine were not removed", why, remedy)
        _warn(outcome, fault, FINDINGS)


def _warn(outcome: TeardownOutcome, fault: Fault, status: int) -> None:
    outcome.warnings.append(fault)
    outcome.statuses.add(status)


def _print(outcome: TeardownOutcome, options: dict[str, Any]) -> None:
    if options["output"] == "json":
        click.echo(json.dumps(_as_value(outcome, options), indent=2))
    else:
        for line in _table(outcome):
            click.echo(line)
    for warning in outcome.warnings:
        click.echo("\n".join(printable(line) for line in warning.three_lines.split("\n")), err=True)
    if not outcome.rows and not outcome.files and not outcome.warnings:
        click.echo("nothing to do: no object and no file of the tunnel was found", err=True)


def _table(outcome: TeardownOutcome) -> Iterator[str]:
    rows = [*outcome.rows, *outcome.files]
    width = max((len(name) for name, _, _ in rows), default=0)
    for name, state, detail in rows:
        yield printable(f"{name:{width}}  {state:18}  {detail}".rstrip())


def _as_value(outcome: TeardownOutcome, options: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "TeardownReport",
        "dryRun": options["dry_run"],
        "objects": [{"object": name, "state": state, "detail": detail} for name, state, detail in outcome.rows],
        "files": [{"path": path, "state": state, "detail": detail} for path, state, detail in outcome.files],
        "warnings": [
            {"code": fault.code, "what": fault.what, "why": fault.why, "next": fault.remedy}
            for fault in outcome.warnings
        ],
        "timedOut": TIMED_OUT in outcome.statuses,
    }
