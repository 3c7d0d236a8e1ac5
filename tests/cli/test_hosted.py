"""`umbilical hosted` as a group."""

import pytest

from umbilical.cli import hosted, main


def test_its_commands_are_listed() -> None:
    assert hosted.COMMANDS == ("render", "apply", "check")


def test_each_command_has_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in hosted.COMMANDS:
        assert main.run(["hosted", name, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"Usage: umbilical hosted {name}")
