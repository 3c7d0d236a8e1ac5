"""`umbilical proxy`: its commands."""

import pytest

from umbilical.cli import main, proxy


def test_the_group_lists_what_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["proxy", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in proxy.COMMANDS)
