"""`umbilical lab list`: what the lab can tell and what it can break."""

import json
from typing import Final

import click

API_VERSION: Final = "umbilical.dev/v1alpha1"


@click.command(name="list")
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", help="How to print.")
def list_(output: str) -> None:
    """Name every scenario (`lab run NAME`) and every fault (`lab break NAME`)."""
    from umbilical.lab.faults import registry as faults
    from umbilical.lab.scenarios import scenario as scenarios

    rows = {
        "scenarios": [(name, scenarios.find(name).summary) for name in scenarios.names()],
        "faults": [(name, faults.find(name).summary) for name in faults.names()],
    }
    if output == "json":
        lists = {kind: [{"name": name, "summary": text} for name, text in pairs] for kind, pairs in rows.items()}
        click.echo(json.dumps({"apiVersion": API_VERSION, "kind": "LabList", **lists}, indent=2))
        return
    for kind, pairs in rows.items():
        width = max(len(name) for name, _ in pairs)
        click.echo(f"{kind}:")
        for name, text in pairs:
            click.echo(f"  {name:<{width}}  {text}")
