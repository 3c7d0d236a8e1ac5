"""`umbilical version`."""

import json
import platform
from typing import Final

import click

from umbilical import __version__

API_VERSION: Final = "umbilical.dev/v1alpha1"
KONNECTIVITY: Final = "v0.36.0"
"""The upstream release whose flags, metrics and wire form are kept."""


@click.command()
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer.")
def version(output: str) -> int:
    """Say which version this is."""
    facts = {"version": __version__, "konnectivity": KONNECTIVITY, "python": platform.python_version()}
    if output == "json":
        click.echo(json.dumps({"apiVersion": API_VERSION, "kind": "Version", **facts}))
    else:
        click.echo(f"umbilical {__version__} (konnectivity {KONNECTIVITY}, python {facts['python']})")
    return 0
