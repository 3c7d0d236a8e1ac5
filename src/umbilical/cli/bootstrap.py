"""`umbilical bootstrap`: the tunnel in an installer's output. One module per command, `bootstrap_<command>.py`."""

from typing import Final

import click

from umbilical.cli.lazy_group import LazyGroup

COMMANDS: Final = ("render", "plan", "patch", "diff", "undo", "verify", "teardown", "analyze")


@click.group(cls=LazyGroup, modules={name: f"umbilical.cli.bootstrap_{name}" for name in COMMANDS})
def bootstrap() -> None:
    """The tunnel in an installer's output: render, patch, prove, undo, tear down."""
