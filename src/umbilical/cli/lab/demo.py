"""`umbilical lab demo`: run the first scenario, show it in the terminal and write an HTML report."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from umbilical.cli.lab.options import program_options
from umbilical.fault import LabError

if TYPE_CHECKING:
    from umbilical.lab.scenario_run import ScenarioRun

SCENARIO: Final = "webhook-through-tunnel"
TITLE: Final = "A webhook through the tunnel"
LAB_NAME: Final = "demo"
REPORT: Final = Path("out/demo/report.html")
_FILE: Final = click.Path(path_type=Path)
# A Kubernetes program is missing or cannot run here: the stand-in is used instead.
_NO_KUBERNETES: Final = ("UMB824", "UMB825")
# Namespaces cannot be used: no permission, an old kernel, or a missing program.
_NO_NAMESPACES: Final = ("UMB820", "UMB821", "UMB822")


@click.command()
@click.option("--keep", is_flag=True, help="Keep the lab and its tunnel, for `lab shell` and `lab break`.")
@click.option("--breakage", metavar="NAME", help="Show this breakage instead; see `umbilical lab list`.")
@click.option(
    "--stand-in/--real",
    "stand_in",
    default=None,
    help="Run without or only with Kubernetes; default: with it if its programs are found.",
)
@click.option("--report", type=_FILE, metavar="FILE", help=f"File for the HTML report.  [default: {REPORT}]")
@program_options
def demo(
    keep: bool,
    breakage: str | None,
    stand_in: bool | None,
    report: Path | None,
    bin_dir: Path | None,
    kubernetes_version: str | None,
) -> None:
    """Show a webhook call without, through and after the tunnel.

    Runs in a lab of its own on this machine and removes it at the end.
    """
    from umbilical.cli.lab import run

    place = _report_place(report)
    is_any = not (bin_dir or kubernetes_version)
    if breakage is None and not keep and stand_in is not False and is_any and _is_on_loopback(place):
        return
    scenario_run = _scenario_run(keep, breakage, stand_in, bin_dir, kubernetes_version)
    transcript, lab = run.run_in_view(scenario_run, TITLE if breakage is None else f"Breakage: {breakage}", place)
    run.close(transcript, run.write(transcript, place, is_stand_in=scenario_run.stand_in))
    if scenario_run.stand_in:
        _print_stand_in_note()
    if lab is not None:
        run.print_kept(f"--name {LAB_NAME}", has_tunnel=True)


def _is_on_loopback(place: Path) -> bool:
    """Without namespaces, run the demo on loopback and return True; first print what is not shown."""
    from umbilical.cli.lab import run
    from umbilical.lab import isolation, loopback

    try:
        isolation.choose()
        return False
    except LabError as error:
        if error.code not in _NO_NAMESPACES:
            raise
        refusal = error
    why = " ".join(f"{refusal.what}: {refusal.why}".split())
    click.echo(f"No namespaces here ({why}): the demo runs on loopback and does not show {loopback.NOT_SHOWN}.")
    click.echo(f"To run the full demo: {refusal.remedy}")
    click.echo("A program of Umbilical calls the webhook instead of kube-apiserver.\n")
    transcript = run.run_on_loopback(f"{TITLE}, on loopback", place)
    run.close(transcript, run.write(transcript, place, is_stand_in=True))
    click.echo(f"\nThis ran on loopback, without namespaces. Not shown: {loopback.NOT_SHOWN}.")
    return True


def _report_place(asked: Path | None) -> Path:
    """Return the report's path; a temporary directory if the current one is not writable."""
    from umbilical.cli.lab.run import check_report, may_write

    if asked is not None:
        return check_report(asked)
    return REPORT if may_write(REPORT) else Path(tempfile.mkdtemp(prefix="umbilical-demo-")) / REPORT.name


def _scenario_run(
    keep: bool, breakage: str | None, stand_in: bool | None, bin_dir: Path | None, kubernetes_version: str | None
) -> "ScenarioRun":
    from umbilical.lab.breakages import registry as breakages
    from umbilical.lab.scenario_run import ScenarioRun
    from umbilical.lab.scenarios import scenario as scenarios
    from umbilical.lab.state import RunnerKind, default_directory

    if breakage is not None:
        breakages.find(breakage)
    wanted = ScenarioRun(
        scenarios.find(SCENARIO),
        RunnerKind.PROCESS,
        keep=keep,
        directory=default_directory(LAB_NAME) if keep else None,
        name=LAB_NAME,
        breakage=breakage,
        bin_dir=bin_dir,
        kubernetes_version=kubernetes_version,
    )
    if stand_in is None:
        return replace(wanted, stand_in=not _has_kubernetes(wanted))
    return replace(wanted, stand_in=stand_in)


def _has_kubernetes(wanted: "ScenarioRun") -> bool:
    """Find the Kubernetes programs. With --bin-dir or --kubernetes-version, a missing one is an error."""
    from umbilical.lab.scenario_run import binaries

    try:
        binaries(wanted)
    except LabError as error:
        if wanted.bin_dir or wanted.kubernetes_version or error.code not in _NO_KUBERNETES:
            raise
        click.echo(f"Running without Kubernetes: {error.what}")
        click.echo("A program of Umbilical calls the webhook instead of kube-apiserver.\n")
        return False
    return True


def _print_stand_in_note() -> None:
    click.echo("\nA stand-in replaced kube-apiserver: it reads the same egress selector, dials through the same socket")
    click.echo("and sends a real AdmissionReview over TLS.")
    click.echo("To run with the real kube-apiserver, built from source (needs Go, some minutes):  make demo-real")
