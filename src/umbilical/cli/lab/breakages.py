"""`umbilical lab list`, `break` and `mend`."""

import json
from pathlib import Path

import click

from umbilical.checks.report import API_VERSION
from umbilical.cli.findings import output_option
from umbilical.cli.lab.options import chosen_directory, lab_options


@click.command(name="list")
@output_option("table", "json")
def list_(output: str) -> None:
    """List all scenarios and breakages.

    Scenarios are for `umbilical lab run`, breakages for `umbilical lab break`.
    """
    from umbilical.lab.breakages import registry as breakages
    from umbilical.lab.scenarios import scenario as scenarios

    rows = {
        "scenarios": [(name, scenarios.find(name).summary) for name in scenarios.names()],
        "breakages": [(name, breakages.find(name).summary) for name in breakages.names()],
    }
    if output == "json":
        keys = {"scenarios": "scenarios", "breakages": "faults"}
        lists = {keys[kind]: [{"name": name, "summary": text} for name, text in pairs] for kind, pairs in rows.items()}
        click.echo(json.dumps({"apiVersion": API_VERSION, "kind": "LabList", **lists}, indent=2))
        return
    for kind, pairs in rows.items():
        width = max(len(name) for name, _ in pairs)
        click.echo(f"{kind}:")
        for name, text in pairs:
            click.echo(f"  {name:<{width}}  {text}")


@click.command(name="break")
@click.argument("breakage_name", metavar="BREAKAGE")
@lab_options
def break_(breakage_name: str, name: str, directory: Path | None) -> None:
    """Break one thing in a lab with a tunnel.

    `umbilical lab list` lists the breakages; `umbilical lab mend` repairs them.
    """
    from umbilical.cli.lab.transcript_view import choose_view
    from umbilical.lab.breakages import registry
    from umbilical.lab.breakages.repair import check, show_break
    from umbilical.lab.lab import Lab
    from umbilical.lab.scenario_run import load_testbed
    from umbilical.lab.transcript import Transcript

    breakage = registry.find(breakage_name)
    lab = Lab.open(chosen_directory(name, directory))
    title = f"Breakage: {breakage.name}"
    testbed = load_testbed(lab, Transcript(title))
    check(testbed, breakage)
    with choose_view(title, is_stand_in=testbed.options.is_stand_in) as view:
        show_break(load_testbed(lab, Transcript(title, view)), breakage)
    where = f"--dir {directory}" if directory is not None else f"--name {name}"
    click.echo(f"\nto repair it: umbilical lab mend {where} {breakage.name}")


@click.command()
@click.argument("breakage_name", metavar="[BREAKAGE]", required=False)
@click.option("--all", "everything", is_flag=True, help="Repair every breakage; the default without BREAKAGE.")
@lab_options
def mend(breakage_name: str | None, everything: bool, name: str, directory: Path | None) -> None:
    """Repair one BREAKAGE, or all that `lab break` made."""
    from umbilical.cli.lab.transcript_view import choose_view
    from umbilical.lab.breakages import registry
    from umbilical.lab.breakages.repair import active_breakages, show_mend
    from umbilical.lab.lab import Lab
    from umbilical.lab.scenario_run import load_testbed
    from umbilical.lab.transcript import Transcript

    if breakage_name is not None and everything:
        raise click.UsageError("give either BREAKAGE or --all, not both")
    if breakage_name is not None:
        registry.find(breakage_name)
    lab = Lab.open(chosen_directory(name, directory))
    wanted = [breakage_name] if breakage_name is not None else active_breakages(lab)[::-1]
    if not wanted:
        click.echo("nothing is broken")
        return
    is_stand_in = load_testbed(lab, Transcript("Mending")).options.is_stand_in
    with choose_view("Mending", is_stand_in=is_stand_in) as view:
        testbed = load_testbed(lab, Transcript("Mending", view))
        for each in wanted:
            show_mend(testbed, each)
