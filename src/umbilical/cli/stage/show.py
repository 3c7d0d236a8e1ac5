"""`umbilical stage list`, `show` and `status`: recorded stages, one in full, and checks run now. Changes nothing."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umbilical.checks.check import Finding, Outcome
from umbilical.checks.report import API_VERSION
from umbilical.cli import findings
from umbilical.cli.findings import output_option
from umbilical.cli.stage.cluster import directory_option, find_stage, junit_option, reading_record
from umbilical.cli.terminal import has_colour
from umbilical.fault import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from umbilical.hardway.site import Site
    from umbilical.hardway.stage import Stage
    from umbilical.hardway.state import RunState, StageRecord


@click.command()
@directory_option
@output_option("table", "json")
def list_(folder: Path, output: str) -> None:
    """List all stages with their recorded status.

    `umbilical stage status` runs their checks now.
    """
    from umbilical.cli.stage import report
    from umbilical.hardway.ledger import holder, read_record
    from umbilical.hardway.stages import catalogue

    write = report.list_json if output == "json" else report.list_table
    text = write(catalogue.stages(), read_record(folder), is_locked=holder(folder) is not None)
    click.echo(text, nl=False, color=has_colour())


@click.command()
@click.argument("name", metavar="STAGE")
@directory_option
@click.option(
    "--explain", "explains", is_flag=True, help="Explain the stage and how to check it by hand; needs no config."
)
@output_option("table", "json")
def show(name: str, folder: Path, explains: bool, output: str) -> None:
    """Show one stage: steps, files, checks, recorded status.

    STAGE is a number or a name.
    """
    from umbilical.cli.stage import report
    from umbilical.hardway.stages import catalogue

    stage = find_stage(name, catalogue.stages())
    if explains:
        click.echo(report.explanation(stage), nl=False)
        return
    with reading_record(folder) as (site, state):
        value = _value(stage, site, state.stage(stage.number), folder)
    click.echo(
        json.dumps({"apiVersion": API_VERSION, "kind": "Stage", **value}, indent=2) + "\n"
        if output == "json"
        else _table(value),
        nl=False,
    )


def _value(stage: "Stage", site: "Site", record: "StageRecord", folder: Path) -> dict[str, Any]:
    from umbilical.cli.stage.report import stage_value
    from umbilical.hardway.ledger import holder
    from umbilical.hardway.stage import shown_steps

    value = stage_value(stage, record, is_locked=holder(folder) is not None)
    recorded = value.pop("checks")
    return {
        **value,
        "inputs": dict(stage.inputs(site)),
        "files": list(site.files.get(stage.number, ())),
        "steps": [{"title": step.title, "command": step.command} for step in shown_steps(stage, site)],
        "checks": [{"id": check.id, "title": check.title} for check in stage.checks(site)],
        "found": recorded,
    }


def _table(value: dict[str, Any]) -> str:
    steps, checks, files, numbers = value["steps"], value["checks"], value["files"], value["needs"]
    needs = ", ".join(f"{number:02}" for number in numbers)
    lines = [f"{value['number']:02} {value['title']}", f"   status {value['status']}, needs {needs or 'nothing'}"]
    lines += ["", "steps", *(f"   {step['title']}\n      $ {step['command']}" for step in steps)] if steps else []
    lines += ["", f"files ({len(files)})", *(f"   {name}" for name in files)] if files else []
    lines += ["", "checks", *(f"   {check['id']} {check['title']}" for check in checks)]
    return "\n".join(lines) + "\n"


@click.command()
@click.argument("name", required=False, metavar="[STAGE]")
@directory_option
@output_option("table", "json", "junit")
@junit_option
def status(name: str | None, folder: Path, output: str, junit: Path | None) -> int:
    """Run the checks of STAGE, or of all finished stages, now.

    The exit status is 1 if a check fails.
    """
    from umbilical.cli.stage import report
    from umbilical.hardway.stages import catalogue

    stages = catalogue.stages()
    with reading_record(folder) as (site, state):
        chosen = [find_stage(name, stages)] if name else _finished(stages, site, state)
        found = [finding for stage in chosen for finding in _findings(stage, site)]
    if not chosen:
        click.echo("no stage is done yet: umbilical stage run", err=True)
    details = {"stages": [report.stage_value(stage, state.stage(stage.number), is_locked=True) for stage in chosen]}
    told = partial(findings.report, found, kind="StageStatus", suite="stage.status", details=details)
    click.echo(told(output), nl=False, color=has_colour())
    if junit is not None:
        report.write_junit(junit, told("junit"))
    return findings.status(found)


def _finished(stages: "Sequence[Stage]", site: "Site", state: "RunState") -> "list[Stage]":
    """Return finished stages that no later stage superseded; print a note for each stale one."""
    from umbilical.hardway import pipeline

    for number, because in pipeline.stale(stages, site, state).items():
        click.echo(f"note: stage {number:02} is stale: {because}", err=True)
    return pipeline.finished(stages, state)


def _findings(stage: "Stage", site: "Site") -> list[Finding]:
    from umbilical.hardway import stage as running

    try:
        return running.findings(stage, site)
    except Fault as fault:
        title, why = f"the checks of stage {stage.number:02} can run", "the state of the stage is unknown"
        return [Finding(fault.code, title, why, fault.remedy, Outcome.FAILED, fault.brief)]
