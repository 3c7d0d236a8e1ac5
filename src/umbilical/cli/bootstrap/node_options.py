"""Options that say how to reach a bootstrap machine, the same for every command that does."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.options import FILE, Command

if TYPE_CHECKING:
    from umbilical.bootstrap.node_access import NodeAccess

_NODE: Final = (
    click.option("--ssh-host", metavar="ADDRESS", help="The bootstrap machine; else what --dir knows of it."),
    click.option("--ssh-user", default="core", show_default=True, help="Who to be there."),
    click.option("--ssh-key", type=FILE, help="The key to use; else the installer's in --dir, else ssh's own choice."),
    click.option("--ssh-port", type=click.IntRange(1, 65535), default=22, show_default=True, help="Where sshd is."),
)
DIRECTORY: Final = click.Path(path_type=Path, file_okay=False)


def node_options(command: Command) -> Command:
    for option in reversed(_NODE):
        command = option(command)
    return command


def node_access(options: dict[str, Any]) -> "NodeAccess":
    """Turn the flags of `node_options` into one value."""
    from umbilical.bootstrap.node_access import NodeAccess

    return NodeAccess(options["ssh_host"], options["ssh_user"], options["ssh_key"], options["ssh_port"])
