"""`umbilical config`."""

import pytest

from umbilical.cli import main


def test_its_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["config", "--help"]) == 0
    printed = capsys.readouterr().out
    assert "view" in printed
    assert "schema" in printed
