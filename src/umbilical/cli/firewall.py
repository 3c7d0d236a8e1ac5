"""`umbilical firewall`: agents' way to the bootstrap machine. One module per command, `firewall_<command>.py`."""

from typing import Final

import click

from umbilical.cli.lazy_group import LazyGroup

COMMANDS: Final = ("list", "render", "check")


@click.group(cls=LazyGroup, modules={name: f"umbilical.cli.firewall_{name}" for name in COMMANDS})
def firewall() -> None:
    """The way for agents to the bootstrap machine: what it needs, how to open it, whether it is open."""
