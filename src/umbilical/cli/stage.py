"""`umbilical stage`: a cluster built stage by stage. One module per command, `stage_<command>.py`."""

from typing import Final

import click

from umbilical.cli.lazy_group import LazyGroup

COMMANDS: Final[tuple[str, ...]] = (
    *("init", "plan", "lint", "list", "show", "run", "retry", "status", "watch"),
    *("rollback", "rotate", "break", "doctor", "destroy"),
)


@click.group(cls=LazyGroup, modules={name: f"umbilical.cli.stage_{name}" for name in COMMANDS})
def stage() -> None:
    """A cluster the hard way: every artifact from one typed file, seventeen stages, each explained and checked."""
