"""`umbilical stage status`: what is so now, by asking the checks of stages; nothing is changed."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from umbilical.cli.stage.options import directory_option, load_site
from umbilical.cli.stage.range import find_stage
from umbilical.codes import FINDINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from umbilical.checks.check import Finding
    from umbilical.hardway.site import Site
    from umbilical.hardway.stage import Stage
    from umbilical.hardway.state import State


@click.command()
@click.argument("name", required=False, metavar="[STAGE]")
@directory_option
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "junit"]), default="table", show_default=True, help="Form."
)
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Write the checks here as JUnit too.")
def status(name: str | None, folder: Path, output: str, junit: Path | None) -> int:
    """Ask the checks of STAGE now, or of all stages that are done; status 1 when one fails."""
    from umbilical.checks.check import has_failed
    from umbilical.cli.stage import report
    from umbilical.cli.stage.view import choose_view
    from umbilical.cli.terminal import has_colour
    from umbilical.hardway.ledger import look
    from umbilical.hardway.stages import catalogue

    state, stages = look(folder), catalogue.stages()
    with choose_view(plain=True) as screen:
        site = load_site(folder, screen)
        site.notes = {key: note.value for key, note in state.notes.items()}
        chosen = [find_stage(name, stages)] if name else _asked(stages, site, state)
        found = [finding for stage in chosen for finding in _findings(stage, site)]
    if not chosen:
        click.echo("no stage is done yet: umbilical stage run", err=True)
    details = {"stages": [report.stage_value(stage, state.stage(stage.number), is_locked=True) for stage in chosen]}
    click.echo(report.findings_report(found, output, "stage.status", details), nl=False, color=has_colour())
    if junit is not None:
        report.write_junit(junit, report.findings_report(found, "junit", "stage.status"))
    return FINDINGS if has_failed(found) else 0


def _asked(stages: "Sequence[Stage]", site: "Site", state: "State") -> "list[Stage]":
    """Those that are done and not superseded; that one is stale is said beside."""
    from umbilical.hardway import pipeline
    from umbilical.hardway.state import Status

    for number, because in pipeline.stale(stages, site, state).items():
        click.echo(f"note: stage {number:02} is stale: {because}", err=True)
    done = (Status.DONE, Status.STALE)
    return [
        stage
        for stage in stages
        if state.stage(stage.number).status in done and pipeline.superseded(stage, state) is None
    ]


def _findings(stage: "Stage", site: "Site") -> "list[Finding]":
    from umbilical.checks.check import Finding, Outcome
    from umbilical.fault import Fault
    from umbilical.hardway import judging

    try:
        return judging.findings(stage, site)
    except Fault as fault:
        title = f"the checks of stage {stage.number:02} can be asked"
        return [Finding(fault.code, title, "nobody knows how it is", fault.remedy, Outcome.FAILED, fault.brief)]
