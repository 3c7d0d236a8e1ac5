"""`umbilical config view` as a user runs it."""

import json
from pathlib import Path

import pytest
import yaml
from tests.support.hardway_workspace import make_directory

from umbilical.cli import main


def view(folder: Path, *arguments: str) -> int:
    return main.run(["config", "view", "--dir", str(folder), *arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "c", name="one")


def test_a_table_has_every_value(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert view(folder) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if len(line.split()) > 1)
    assert rows["domain"] == "one.example.com"
    assert rows["hasKubeProxy"] == "true"
    assert "origin" not in rows["key"]


def test_origins_are_columns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert view(folder, "--origin") == 0
    lines = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert lines["key"] == ["value", "origin", "from"]
    assert lines["name"] == ["one", "given"]
    assert lines["baseDomain"] == ["example.com", "default"]
    assert lines["domain"] == ["one.example.com", "computed", "name,", "baseDomain"]


def test_json_and_yaml_have_the_same_tree(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view(folder, "-o", "json")
    as_json = json.loads(capsys.readouterr().out)
    view(folder, "-o", "yaml")
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    assert as_json["networks"]["apiVip"] == "192.168.126.10"
    assert as_json["node"]["master-0"]["name"] == "master-0.one.example.com"


def test_json_and_yaml_tell_origins_as_a_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view(folder, "--origin", "-o", "json")
    as_json = json.loads(capsys.readouterr().out)
    view(folder, "--origin", "-o", "yaml")
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    told = {one["path"]: one for one in as_json}
    assert told["name"] == {"path": "name", "value": "one", "origin": "given"}
    assert told["domain"]["from"] == "name, baseDomain"


def test_a_wrong_file_has_status_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cluster.yaml").write_text("nmae: x\n")
    assert view(tmp_path) == 3
    assert "nmae is unknown; did you mean name?" in capsys.readouterr().err
