"""Reading the options of our own commands without running them."""

from collections.abc import Sequence
from typing import Any

import click


def options_of(command: click.Command, arguments: Sequence[str]) -> dict[str, Any]:
    """Return what click hands to the command for these arguments."""
    return command.make_context(command.name, list(arguments), help_option_names=["-h", "--help"]).params
