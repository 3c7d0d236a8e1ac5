"""`umbilical lab list`."""

import json

import pytest

from umbilical.cli import main
from umbilical.lab.faults import registry as faults
from umbilical.lab.scenarios import registry as scenarios


def test_every_scenario_and_fault_is_named_with_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["lab", "list"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in (*scenarios.names(), *faults.names()))


def test_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["lab", "list", "-o", "json"]) == 0
    lists = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in lists["scenarios"]] == scenarios.names()
    assert [each["name"] for each in lists["faults"]] == faults.names()
