"""`umbilical version`."""

import json

import pytest

from umbilical import __version__
from umbilical.cli import main


def test_a_person_gets_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["version"]) == 0
    assert capfd.readouterr().out.startswith(f"umbilical {__version__} (konnectivity v")


def test_a_program_gets_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["version", "-o", "json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert (answer["apiVersion"], answer["kind"], answer["version"]) == (
        "umbilical.dev/v1alpha1",
        "Version",
        __version__,
    )
