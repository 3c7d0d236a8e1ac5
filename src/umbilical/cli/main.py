"""`umbilical`: finds the command, loads only what it needs, and tells failures in three lines."""

import sys
from collections.abc import Sequence
from typing import Final

import click

from umbilical.cli.lazy_group import LazyGroup
from umbilical.codes import INTERRUPTED, USAGE
from umbilical.fault import Fault

PROGRAM: Final = "umbilical"
ENVIRONMENT_PREFIX: Final = "UMBILICAL"
COMMANDS: Final = (
    *("server", "agent", "proxy", "ping"),
    *("pki", "bootstrap", "hosted", "firewall", "lab", "stage", "config", "explain", "version", "completion"),
)
GROUPS: Final = {
    "proxy": (
        "Reach what only agents can, with programs that speak SOCKS5 or HTTP proxy.",
        ["socks5", "https", "curl"],
    ),
    "pki": (
        "The tunnel's certificates: make, add, look at, check and renew them.",
        ["init", "issue", "inspect", "verify", "rotate"],
    ),
    "bootstrap": (
        "The tunnel in an installer's output: render, patch, prove, undo, tear down.",
        ["render", "plan", "patch", "diff", "undo", "verify", "teardown", "analyze"],
    ),
    "hosted": (
        "The tunnel of a hosted control plane: render its objects, apply them, check that it works.",
        ["render", "apply", "check"],
    ),
    "firewall": (
        "The way for agents to the bootstrap machine: what it needs, how to open it, whether it is open.",
        ["list", "render", "check"],
    ),
    "lab": (
        "A cluster being born, for real, on this machine: networks, control plane, tunnel, and their faults.",
        ["demo", "run", "list", "up", "status", "shell", "break", "mend", "down"],
    ),
    "stage": (
        "A cluster the hard way: every artifact from one typed file, seventeen stages, each explained and checked.",
        [
            "init",
            "plan",
            "lint",
            "list",
            "show",
            "run",
            "retry",
            "status",
            "watch",
            "rollback",
            "rotate",
            "break",
            "doctor",
            "destroy",
        ],
    ),
    "config": (
        "The file of a cluster that is built the hard way: what follows from it, and its schema.",
        ["view", "schema"],
    ),
}
"""What a group is for, and its commands; each is a module of the package that has the group's name."""

_CONTEXT: Final = {
    "auto_envvar_prefix": ENVIRONMENT_PREFIX,
    "max_content_width": 110,
    "help_option_names": ["-h", "--help"],
}


def _group(name: str) -> LazyGroup:
    purpose, commands = GROUPS[name]
    return LazyGroup(name=name, help=purpose, modules={each: f"umbilical.cli.{name}.{each}" for each in commands})


@click.group(
    cls=LazyGroup,
    modules={name: f"umbilical.cli.{name}" for name in COMMANDS},
    groups={name: _group(name) for name in GROUPS},
    context_settings=_CONTEXT,
)
def umbilical() -> None:
    """A Konnectivity tunnel: webhooks and nodes reached from an apiserver that has no route to them.

    Every option of a command can also be set by the environment: UMBILICAL_SERVER_RUN_LISTEN and the like.
    """


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    try:
        result = umbilical.main(list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except Fault as fault:
        return _fail(fault)
    except click.exceptions.NoArgsIsHelpError as help_text:
        help_text.show()
        return USAGE
    except click.ClickException as fault:
        return _fail(_usage_fault(fault))
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as fault:
        return _fail_internally(fault)
    return result if isinstance(result, int) else 0


def _usage_fault(fault: click.ClickException) -> Fault:
    context = fault.ctx if isinstance(fault, click.UsageError) else None
    command = context.command_path if context is not None else PROGRAM
    return Fault("UMB001", f"{command}: wrong usage", fault.format_message(), f"{command} --help")


def _fail(fault: Fault) -> int:
    click.echo(fault.three_lines, err=True)
    return fault.exit_status


def _fail_internally(fault: Exception) -> int:
    import traceback

    traceback.print_exception(fault)
    why = f"{type(fault).__name__}: {fault}"
    return _fail(Fault("UMB099", "a fault of umbilical itself", why, "report it with the lines above"))
