"""`umbilical`: finds the command, loads only what it needs, and tells failures in three lines; and `completion`."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import click

from umbilical.codes import INTERRUPTED, USAGE
from umbilical.fault import Fault


class LazyGroup(click.Group):
    """Knows its commands by name and module and imports a module when its command is asked for.

    A module defines a command by its name, hyphens as underscores; where the name is Python's own (`break`, `list`),
    an underscore follows it.
    """

    def __init__(
        self, *arguments: Any, modules: Mapping[str, str], groups: Mapping[str, click.Group] = {}, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._modules = dict(modules)
        self._groups = dict(groups)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._groups:
            return self._groups[cmd_name]
        if cmd_name not in self._modules:
            return None
        module, name = import_module(self._modules[cmd_name]), cmd_name.replace("-", "_")
        command = getattr(module, f"{name}_" if hasattr(module, f"{name}_") else name)
        assert isinstance(command, click.Command)
        return command


def _placed(group: str, words: str) -> dict[str, str]:
    """Read `list` as a command in the module of that name, and `shell:status` as one in the module `status`."""
    pairs = (word.partition(":") for word in words.split())
    return {name: f"umbilical.cli.{group}.{module or name}" for name, _, module in pairs}


PROGRAM: Final = "umbilical"
COMPLETION_VARIABLE: Final = "_UMBILICAL_COMPLETE"
ENVIRONMENT_PREFIX: Final = "UMBILICAL"
COMMANDS: Final = (
    *("server", "agent", "proxy", "ping"),
    *("pki", "bootstrap", "hosted", "firewall", "lab", "stage", "config", "explain", "version", "completion"),
)
GROUPS: Final = {
    "proxy": (
        "Reach what only agents can, with programs that speak SOCKS5 or HTTP proxy.",
        _placed("proxy", "socks5 https curl"),
    ),
    "pki": (
        "The tunnel's certificates: make, add, look at, check and renew them.",
        _placed("pki", "init:issue issue inspect verify:inspect rotate:issue"),
    ),
    "bootstrap": (
        "The tunnel in an installer's output: render, patch, prove, undo, tear down.",
        _placed("bootstrap", "render plan patch diff undo verify teardown analyze"),
    ),
    "hosted": (
        "The tunnel of a hosted control plane: render its objects, apply them, check that it works.",
        _placed("hosted", "render apply check"),
    ),
    "firewall": (
        "The way for agents to the bootstrap machine: what it needs, how to open it, whether it is open.",
        _placed("firewall", "list render check"),
    ),
    "lab": (
        "Run a test cluster with the tunnel on this machine.",
        _placed("lab", "demo run list:breakages up status shell:status break:breakages mend:breakages down:up"),
    ),
    "stage": (
        "A cluster the hard way: every artifact from one typed file, seventeen stages, each explained and checked.",
        _placed(
            "stage",
            "init:artifacts plan:artifacts lint list:show show run retry:run status:show watch rollback:undo"
            " rotate:artifacts break:lessons doctor:lessons destroy:undo",
        ),
    ),
    "config": (
        "The file of a cluster that is built the hard way: what follows from it, and its schema.",
        dict.fromkeys(("view", "schema"), "umbilical.cli.config"),
    ),
}
"""What a group is for, and its commands in the order of its help, each with its module."""

_CONTEXT: Final = {
    "auto_envvar_prefix": ENVIRONMENT_PREFIX,
    "max_content_width": 110,
    "help_option_names": ["-h", "--help"],
}


def _group(name: str) -> LazyGroup:
    purpose, commands = GROUPS[name]
    return LazyGroup(name=name, help=purpose, modules=commands)


@click.group(
    cls=LazyGroup,
    modules={name: f"umbilical.cli.{name}" for name in COMMANDS} | {"completion": "umbilical.cli.main"},
    groups={name: _group(name) for name in GROUPS},
    context_settings=_CONTEXT,
)
def umbilical() -> None:
    """A Konnectivity tunnel: webhooks and nodes reached from an apiserver that has no route to them.

    Every option of a command can also be set by the environment: UMBILICAL_SERVER_RUN_LISTEN and the like.
    """


@click.command(epilog="Use it as: source <(umbilical completion bash)")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    shell_class = get_completion_class(shell)
    assert shell_class is not None, "every choice is a shell that click knows"
    script = shell_class(context.find_root().command, {}, PROGRAM, COMPLETION_VARIABLE)
    # Not script.source(): for bash that starts a shell to ask its version.
    click.echo(script.source_template % script.source_vars())
    return 0


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
