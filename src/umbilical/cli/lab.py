"""`umbilical lab`: a cluster being born, on this machine. One module per command, `lab_<command>.py`."""

from typing import Final

import click

from umbilical.cli.lazy_group import LazyGroup

COMMANDS: Final[tuple[str, ...]] = ("demo", "run", "list", "up", "status", "shell", "break", "mend", "down")


@click.group(cls=LazyGroup, modules={name: f"umbilical.cli.lab_{name}" for name in COMMANDS})
def lab() -> None:
    """A cluster being born, for real, on this machine: networks, control plane, tunnel, and their faults."""
