"""`umbilical version`."""

import json
import sys

import pytest
from tests.support.compiled_unit import is_compiled

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


def test_the_answer_tells_the_form_that_runs_and_its_interpreter(capfd: pytest.CaptureFixture[str]) -> None:
    form = "compiled" if is_compiled() else "pure"
    assert main.run(["version"]) == 0
    line = capfd.readouterr().out
    assert f", {form}, python 3." in line
    assert line.endswith(f" at {sys.executable})\n")
    assert main.run(["version", "-o", "json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert answer["form"] == form
    assert answer["interpreter"].endswith(sys.executable)
