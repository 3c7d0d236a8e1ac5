"""`umbilical config schema` as a user runs it."""

import json

import jsonschema
import pytest

from umbilical.assets.hardway.config_schema import schema
from umbilical.cli import main


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["config", "schema"]) == 0
    value = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(value)
    assert value == schema()
