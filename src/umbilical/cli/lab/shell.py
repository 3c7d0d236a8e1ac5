"""`umbilical lab shell`: a terminal on a node, or one command there."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from umbilical.cli.lab.options import chosen_directory, lab_options

if TYPE_CHECKING:
    from umbilical.lab.lab import Lab

_FROM_TERMINAL = ("TERM", "COLORTERM", "LANG", "LC_ALL", "NO_COLOR")
"""What a program must know of the terminal that it draws on; nothing else of the caller's goes in."""


@click.command(context_settings={"ignore_unknown_options": True})
@lab_options
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def shell(name: str, directory: Path | None, node: str, command: tuple[str, ...]) -> NoReturn:
    """Open a shell on NODE, or run COMMAND there.

    As in: umbilical lab shell master-0 -- ip route. The command's exit status is this command's own.
    """
    from umbilical.lab.lab import Lab

    lab = Lab.open(chosen_directory(name, directory))
    words = way_in(lab, node, command or ("bash", "-i"))
    os.execve(words[0], words, environment(lab, node))


def way_in(lab: "Lab", node: str, command: tuple[str, ...]) -> list[str]:
    """Say how to get from this machine into a node: first to where the keeper is, then on to the node's anchor.

    Two steps, since the anchor's number means something only among the lab's own processes.
    """
    from umbilical.lab.isolation import find_program

    nsenter = find_program("nsenter") or "/usr/bin/nsenter"
    user = ["--user", "--preserve-credentials"] if lab.state.is_rootless else []
    outer = [nsenter, f"--target={lab.state.keeper_pid}", *user, "--mount", "--pid", "--"]
    inner = [nsenter, f"--target={lab.anchor(node)}", "--mount", "--uts", "--net", "--"]
    return [*outer, *inner, *command]


def environment(lab: "Lab", node: str) -> dict[str, str]:
    from umbilical.lab import node_root

    terminal = {name: os.environ[name] for name in _FROM_TERMINAL if name in os.environ}
    return {**terminal, **node_root.environment(node), "PS1": f"[{lab.state.name}] \\u@\\h:\\w\\$ "}
