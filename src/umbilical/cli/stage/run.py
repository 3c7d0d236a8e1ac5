"""`umbilical stage run` and `retry`: run stages in order until their checks pass, or one stage again."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from umbilical.cli.findings import output_option
from umbilical.cli.stage.cluster import (
    OpenCluster,
    StageRange,
    StepPrompt,
    bounds,
    directory_option,
    find_stage,
    here,
    junit_option,
    working,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from umbilical.hardway.config.cluster import Cluster
    from umbilical.hardway.pipeline import Pipeline
    from umbilical.hardway.stage import Stage
    from umbilical.hardway.state import RunState


@click.command()
@click.argument("chosen", type=StageRange(), required=False, metavar="[FROM..TO|N]")
@directory_option
@click.option("--only", is_flag=True, help="Run only stage N, not the stages before it.")
@click.option(
    "--step", "stepwise", is_flag=True, help="Show each step with its command and ask for confirmation before it."
)
@click.option(
    "--allow-reissue",
    "reissue",
    multiple=True,
    metavar="NODE",
    help="Name of a node that may request its first certificate a second time; repeatable.",
)
@click.option(
    "-y", "--yes", is_flag=True, help="Run stages again on installed machines without confirmation if inputs changed."
)
@output_option("table", "json", "junit")
@junit_option
def run(
    chosen: tuple[int | None, int | None] | None,
    folder: Path,
    only: bool,
    stepwise: bool,
    reissue: tuple[str, ...],
    yes: bool,
    output: str,
    junit: Path | None,
) -> None:
    """Run stages in order until their checks pass.

    Runs all stages, stages 1 to N, or FROM..TO. Stages that are done and unchanged are only checked. After a failure
    or a kill, run the same command again to resume. Progress goes to stderr, the report to stdout.

    Exit status: 1 a check failed, 7 it is not safe to continue, 8 interrupted, 9 timed out.
    """
    from umbilical.hardway.stages import catalogue

    if stepwise and (yes or not sys.stdin.isatty()):
        raise click.UsageError("--step needs a terminal and cannot be combined with --yes")
    first, last = bounds(chosen, catalogue.stages())
    if only:
        first = _only(chosen, last)
    with working(folder, plain=stepwise) as work:
        work.site.reissue = frozenset(reissue)
        if not yes:
            refuse_stale(work, first, last)
        execute(
            work, work.pipeline(StepPrompt(work.site) if stepwise else None), first, last, output=output, junit=junit
        )
        if output == "table" and last == catalogue.stages()[-1].number:
            click.echo(way_in(work.site.cluster, folder), err=True, nl=False)


def way_in(cluster: "Cluster", folder: Path) -> str:
    """Return the first commands for a finished cluster."""
    from umbilical.hardway.config.cluster import MachinesKind

    place = here(folder)
    commands = {
        "list the nodes": f"kubectl{place} -- get nodes",
        "open a shell on a node": f"shell{place} {cluster.members[-1].id}",
    }
    if cluster.machines is MachinesKind.LAB:
        from umbilical.lab.images import SHELL

        commands |= {
            "open a shell in a pod": f"kubectl{place} -- run try -it --rm --image={SHELL} -- bash",
            "load images of `docker save` onto all nodes": f"load-image{place} FILE.tar",
            "delete the cluster": f"destroy{place}",
        }
    lines = (f"  umbilical stage {command}   # {purpose}\n" for purpose, command in commands.items())
    return "".join(("the cluster is ready; next:\n", *lines))


def refuse_stale(work: OpenCluster, first: int, last: int) -> None:
    """Ask before stages run again on installed machines: the cluster may be in use.

    Raises:
        Unsafe: stdin is not a terminal (UMB726).
        Abort: the answer was no.
    """
    from umbilical.fault import Unsafe
    from umbilical.hardway.pipeline import stale
    from umbilical.hardway.stage import FIRST_ON_MACHINES
    from umbilical.hardway.stages import catalogue

    reasons = stale(catalogue.stages(), work.site, work.ledger.state)
    chosen = [number for number in reasons if max(first, FIRST_ON_MACHINES) <= number <= last]
    if not chosen:
        return
    told = f"stage {chosen[0]:02} would run again on installed machines"
    if not sys.stdin.isatty():
        remedy = "umbilical stage plan shows what changed; then add --yes, or revert the change"
        raise Unsafe("UMB726", told, reasons[chosen[0]], remedy)
    click.confirm(f"{told} ({reasons[chosen[0]]}): continue?", abort=True, err=True)


def execute(
    work: OpenCluster,
    pipeline: "Pipeline",
    first: int,
    last: int,
    *,
    force: bool = False,
    output: str,
    junit: Path | None,
) -> None:
    """Run the stages, and always print the report."""
    try:
        pipeline.run(first, last, force=force)
    finally:
        _report(pipeline, output, junit)


def _only(chosen: tuple[int | None, int | None] | None, last: int) -> int:
    if chosen is None or (chosen[0] is not None and chosen[0] != chosen[1]):
        raise click.UsageError("--only needs the number of one stage")
    return last


def _report(pipeline: "Pipeline", output: str, junit: Path | None) -> None:
    from umbilical.cli.stage import report

    if junit is not None:
        report.write_junit(junit, report.run_junit(pipeline.results))
    if output == "json":
        click.echo(report.run_json(pipeline.results), nl=False)
    elif output == "junit":
        click.echo(report.run_junit(pipeline.results), nl=False)
    elif pipeline.results:
        click.echo(report.run_table(pipeline.results), nl=False)


@click.command()
@click.argument("name", required=False, metavar="[STAGE]")
@directory_option
@output_option("table", "json", "junit")
def retry(name: str | None, folder: Path, output: str) -> None:
    """Run the steps of one stage again.

    Without STAGE, the first stage that failed, was interrupted or is stale. With STAGE, also if it is done.
    """
    from umbilical.hardway.stages import catalogue

    stages = catalogue.stages()
    with working(folder) as work:
        number = find_stage(name, stages).number if name else _broken(stages, work.ledger.state)
        execute(work, work.pipeline(), number, number, force=True, output=output, junit=None)


def _broken(stages: "Sequence[Stage]", state: "RunState") -> int:
    from umbilical.hardway.state import StageStatus

    again = (StageStatus.FAILED, StageStatus.INTERRUPTED, StageStatus.RUNNING, StageStatus.STALE)
    for stage in stages:
        if state.stage(stage.number).status in again:
            return stage.number
    raise click.UsageError("no stage failed: name a stage, or continue with `umbilical stage run`")
