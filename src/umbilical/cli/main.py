"""`umbilical`: loads only the command that runs, and prints failures in three lines; and `completion`."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import click

from umbilical.codes import INTERRUPTED, USAGE
from umbilical.fault import Fault


class LazyGroup(click.Group):
    """Imports the module of a command when the command is used.

    The command's function has the command's name with underscores for hyphens, and a trailing underscore where the
    name is a Python keyword or built-in (`break`, `list`).
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
    """Map commands to modules: `list` is in the module `list`, `shell:status` is in the module `status`."""
    pairs = (word.partition(":") for word in words.split())
    return {name: f"umbilical.cli.{group}.{module or name}" for name, _, module in pairs}


PROGRAM: Final = "umbilical"
COMPLETION_VARIABLE: Final = "_UMBILICAL_COMPLETE"
ENVIRONMENT_PREFIX: Final = "UMBILICAL"
COMMANDS: Final = (
    *("server", "agent", "proxy", "status", "trace", "ping"),
    *("pki", "bootstrap", "hosted", "firewall", "lab", "stage", "config", "explain", "version", "completion"),
)
GROUPS: Final = {
    "proxy": (
        "Run SOCKS5 and HTTP proxies that dial through the tunnel.",
        _placed("proxy", "socks5:serve https:serve curl"),
    ),
    "pki": (
        "Create, inspect, verify and rotate tunnel certificates.",
        _placed("pki", "init:issue issue inspect verify:inspect rotate:issue secrets"),
    ),
    "bootstrap": (
        "Add the tunnel to an installer's output, and remove it.",
        _placed("bootstrap", "render plan patch diff undo:patch verify ssh teardown analyze"),
    ),
    "hosted": (
        "Render, apply and check a hosted control plane's tunnel.",
        _placed("hosted", "render apply check"),
    ),
    "firewall": (
        "Render and check the firewall rule for the agents' port.",
        _placed("firewall", "list render check"),
    ),
    "lab": (
        "Run control plane and tunnel on this machine for tests.",
        _placed("lab", "demo run list:breakages up status shell:status break:breakages mend:breakages down:up"),
    ),
    "stage": (
        "Build a cluster the hard way, in seventeen stages.",
        _placed(
            "stage",
            "init:artifacts plan:artifacts lint list:show show run retry:run status:show watch rollback:undo"
            " kubectl:access helm:access shell:access logs:access load-image:access"
            " rotate:artifacts break:lessons doctor:lessons destroy:undo",
        ),
    ),
    "config": (
        "Show the resolved cluster.yaml or its JSON schema.",
        dict.fromkeys(("view", "schema"), "umbilical.cli.config"),
    ),
}
"""Help and commands of each group, in the order of the help, with their modules."""

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
    """Run Konnectivity tunnels, and set up clusters that use them.

    Through the tunnel kube-apiserver reaches webhooks, nodes and aggregated APIs that it has no route to.

    Every option can also be set by an environment variable: UMBILICAL_SERVER_RUN_LISTEN sets --listen of `server run`.
    """


@click.command(epilog="Example: source <(umbilical completion bash)")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    shell_class = get_completion_class(shell)
    assert shell_class is not None, "click knows every choice"
    script = shell_class(context.find_root().command, {}, PROGRAM, COMPLETION_VARIABLE)
    # Not script.source(): for bash it starts a shell to check the version.
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
    from umbilical.checks.report import printable
    from umbilical.cli import log_setup

    log_setup.flush()
    click.echo("\n".join([printable(line) for line in fault.three_lines.split("\n")]), err=True)
    return fault.exit_status


def _fail_internally(fault: Exception) -> int:
    import traceback

    traceback.print_exception(fault)
    why = f"{type(fault).__name__}: {fault}"
    return _fail(Fault("UMB099", "internal error of umbilical", why, "report it with the lines above"))
