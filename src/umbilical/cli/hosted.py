"""`umbilical hosted`: the tunnel of a hosted control plane. One module per command, `hosted_<command>.py`."""

from typing import Final

import click

from umbilical.cli.lazy_group import LazyGroup

COMMANDS: Final = ("render", "apply", "check")


@click.group(cls=LazyGroup, modules={name: f"umbilical.cli.hosted_{name}" for name in COMMANDS})
def hosted() -> None:
    """The tunnel of a hosted control plane: render its objects, apply them, check that it works."""
