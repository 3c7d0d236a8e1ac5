"""`umbilical`: finds the command, loads only what it needs, and tells failures in three lines."""

import sys
from collections.abc import Sequence
from typing import Final

import click

from umbilical.cli.errors import INTERNAL, INTERRUPTED, exit_status, fault_status, three_lines
from umbilical.cli.lazy_group import LazyGroup
from umbilical.fault import Fault
from umbilical.tunnel.errors import StartupError

PROGRAM: Final = "umbilical"
ENVIRONMENT_PREFIX: Final = "UMBILICAL"
COMMANDS: Final = (
    *("server", "agent", "proxy", "ping"),
    *("pki", "bootstrap", "hosted", "firewall", "lab", "stage", "config", "explain", "version", "completion"),
)
"""Each is a module beside this one that defines a command of the same name."""

_CONTEXT: Final = {
    "auto_envvar_prefix": ENVIRONMENT_PREFIX,
    "max_content_width": 110,
    "help_option_names": ["-h", "--help"],
}


@click.group(cls=LazyGroup, modules={name: f"umbilical.cli.{name}" for name in COMMANDS}, context_settings=_CONTEXT)
def umbilical() -> None:
    """A Konnectivity tunnel: webhooks and nodes reached from an apiserver that has no route to them.

    Every option of a command can also be set by the environment: UMBILICAL_SERVER_RUN_LISTEN and the like.
    """


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    try:
        result = umbilical.main(list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except (StartupError, Fault) as fault:
        return _fail(fault)
    except click.exceptions.NoArgsIsHelpError as help_text:
        help_text.show()
        return exit_status("UMB001")
    except click.ClickException as fault:
        return _fail(_usage_fault(fault))
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as fault:
        return _fail_internally(fault)
    return result if isinstance(result, int) else 0


def _usage_fault(fault: click.ClickException) -> StartupError:
    context = fault.ctx if isinstance(fault, click.UsageError) else None
    command = context.command_path if context is not None else PROGRAM
    return StartupError("UMB001", f"{command}: wrong usage", fault.format_message(), f"{command} --help")


def _fail(fault: StartupError | Fault) -> int:
    click.echo(three_lines(fault), err=True)
    return fault_status(fault)


def _fail_internally(fault: Exception) -> int:
    import traceback

    traceback.print_exception(fault)
    why = f"{type(fault).__name__}: {fault}"
    _fail(StartupError("UMB099", "a fault of umbilical itself", why, "report it with the lines above"))
    return INTERNAL
