"""Options of the variant that signs with an existing CA: a patch knows them only to say why it cannot."""

from typing import Any, Final

import click

from umbilical.cli.options import Command
from umbilical.fault import Fault

_OPTIONS: Final = {"ca_cert": "--ca-cert", "ca_key": "--ca-key", "from_install_state": "--from-install-state"}
_FLAGS: Final = frozenset({"from_install_state"})


def authority_options(command: Command) -> Command:
    """Add them, out of sight of `--help`; `refuse_authority` takes them out again."""
    for name, spelling in _OPTIONS.items():
        command = click.option(spelling, name, is_flag=name in _FLAGS, hidden=True)(command)
    return command


def refuse_authority(options: dict[str, Any]) -> dict[str, Any]:
    """Give the other options back.

    Raises:
        Fault: one of these was used.
    """
    used = [spelling for name, spelling in _OPTIONS.items() if options.get(name)]
    if used:
        raise Fault(
            "UMB130",
            f"a patch cannot sign with an existing CA ({', '.join(used)})",
            "the installer's root CA key never reaches the node, and a certificate of one day inside the config would"
            " keep the installer from loading it once it has expired",
            "leave them out: the node makes a CA for a day and throws its key away; render and pki take them",
        )
    return {name: value for name, value in options.items() if name not in _OPTIONS}
