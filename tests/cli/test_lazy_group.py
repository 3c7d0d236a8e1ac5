"""Commands whose modules load when they are asked for."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from umbilical.cli.lazy_group import LazyGroup


def _group() -> click.Group:
    return LazyGroup("tools", modules={"version": "umbilical.cli.version"})


def test_a_command_is_found_in_its_module_and_run() -> None:
    result = CliRunner().invoke(_group(), ["version"])

    assert result.exit_code == 0
    assert "umbilical" in result.output


def test_a_command_whose_name_is_pythons_own_has_an_underscore_behind_it() -> None:
    group = LazyGroup("tools", modules={"list": "umbilical.cli.lab_list"})

    command = group.get_command(click.Context(group), "list")

    assert command is not None
    assert command.name == "list"


def test_an_unknown_command_is_no_import_error() -> None:
    result = CliRunner().invoke(_group(), ["nothing"])

    assert result.exit_code == 2
    assert "No such command" in result.output


def test_a_module_that_does_not_define_its_command_is_our_own_fault() -> None:
    group = LazyGroup("tools", modules={"nothing": "umbilical.cli.version"})

    with pytest.raises(AttributeError):
        group.get_command(click.Context(group), "nothing")


def test_the_version_is_printed_without_loading_yaml_or_cryptography() -> None:
    script = (
        "import sys; from umbilical.cli.main import run; run(['version']);"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    assert {"yaml", "cryptography", "lightkube", "httpx2"}.isdisjoint(done.stdout.split())
