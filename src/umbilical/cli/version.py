"""`umbilical version`."""

import json
import platform
import sys
from importlib.util import find_spec
from typing import Final

import click

from umbilical import __version__
from umbilical.cli.findings import output_option

API_VERSION: Final = "umbilical.dev/v1alpha1"
KONNECTIVITY: Final = "v0.36.0"
"""The upstream release with the same flags, metrics and wire format."""
_COMPILED_WHERE_ANY_IS: Final = "umbilical.wire.http2.buffers"


@click.command()
@output_option("text", "json")
def version(output: str) -> int:
    """Show the versions of Umbilical, Konnectivity and Python.

    Also shows whether the data path is compiled or pure Python.
    """
    facts = {
        "version": __version__,
        "konnectivity": KONNECTIVITY,
        "form": form(),
        "python": platform.python_version(),
        "interpreter": f"{platform.python_implementation()} {sys.executable}",
    }
    if output == "json":
        click.echo(json.dumps({"apiVersion": API_VERSION, "kind": "Version", **facts}))
    else:
        python = f"python {facts['python']} at {sys.executable}"
        click.echo(f"umbilical {__version__} (konnectivity {KONNECTIVITY}, {facts['form']}, {python})")
    return 0


def form() -> str:
    """Return `compiled` or `pure`: the form in which the data path is imported."""
    spec = find_spec(_COMPILED_WHERE_ANY_IS)
    assert spec is not None
    return "pure" if str(spec.origin).endswith(".py") else "compiled"
