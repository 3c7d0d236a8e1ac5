"""`umbilical pki`: the tunnel's certificates. One module per command, `pki_<command>.py`."""

from typing import Final

import click

from umbilical.cli.lazy_group import LazyGroup

COMMANDS: Final = ("init", "issue", "inspect", "verify", "rotate")


@click.group(cls=LazyGroup, modules={name: f"umbilical.cli.pki_{name}" for name in COMMANDS})
def pki() -> None:
    """The tunnel's certificates: make, add, look at, check and renew them."""
