"""`umbilical config`: a cluster's file, as it is understood. One module per command, `config_<command>.py`."""

from typing import Final

import click

from umbilical.cli.lazy_group import LazyGroup

COMMANDS: Final = ("view", "schema")


@click.group(cls=LazyGroup, modules={name: f"umbilical.cli.config_{name}" for name in COMMANDS})
def config() -> None:
    """The file of a cluster that is built the hard way: what follows from it, and its schema."""
