"""`umbilical completion`: the script that teaches a shell our commands and options."""

from typing import Final

import click
from click.shell_completion import get_completion_class

PROGRAM: Final = "umbilical"
VARIABLE: Final = "_UMBILICAL_COMPLETE"


@click.command(epilog="Use it as: source <(umbilical completion bash)")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the completion script for a shell."""
    shell_class = get_completion_class(shell)
    assert shell_class is not None, "every choice is a shell that click knows"
    script = shell_class(context.find_root().command, {}, PROGRAM, VARIABLE)
    # Not script.source(): for bash that starts a shell to ask its version.
    click.echo(script.source_template % script.source_vars())
    return 0
