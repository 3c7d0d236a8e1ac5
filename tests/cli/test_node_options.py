"""Flags that lead to a bootstrap machine."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from umbilical.bootstrap.node_access import NodeAccess
from umbilical.cli.node_options import node_access, node_options


@click.command()
@node_options
def show(**options: Any) -> None:
    click.echo(repr(node_access(options)))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], NodeAccess()),
        (
            ["--ssh-host", "fd00::9", "--ssh-user", "root", "--ssh-key", "k", "--ssh-port", "2222"],
            NodeAccess("fd00::9", "root", Path("k"), 2222),
        ),
    ],
)
def test_flags_become_one_value(arguments: list[str], expected: NodeAccess) -> None:
    assert CliRunner().invoke(show, arguments).output == f"{expected!r}\n"


def test_a_port_that_does_not_exist_is_refused() -> None:
    assert CliRunner().invoke(show, ["--ssh-port", "0"]).exit_code == 2
