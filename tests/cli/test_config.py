"""`umbilical config` and `umbilical explain`."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from tests.support.fixture_types import Captured
from tests.support.hardway_workspace import make_directory

from umbilical.cli import main
from umbilical.hardway.config.reading import schema


def test_the_schema_is_printed(capsys: Captured) -> None:
    assert main.run(["config", "schema"]) == 0
    value = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(value)
    assert value == schema()


def view(folder: Path, *arguments: str) -> int:
    return main.run(["config", "view", "--dir", str(folder), *arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "c", name="one")


def test_a_table_has_every_value(folder: Path, capsys: Captured) -> None:
    assert view(folder) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if len(line.split()) > 1)
    assert rows["domain"] == "one.example.com"
    assert rows["hasKubeProxy"] == "true"
    assert "origin" not in rows["key"]


def test_origins_are_columns(folder: Path, capsys: Captured) -> None:
    assert view(folder, "--origin") == 0
    lines = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert lines["key"] == ["value", "origin", "from"]
    assert lines["name"] == ["one", "given"]
    assert lines["baseDomain"] == ["example.com", "default"]
    assert lines["domain"] == ["one.example.com", "computed", "name,", "baseDomain"]


def test_json_and_yaml_have_the_same_tree_and_the_same_origins(folder: Path, capsys: Captured) -> None:
    view(folder, "-o", "json")
    as_json = json.loads(capsys.readouterr().out)
    view(folder, "-o", "yaml")
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    assert as_json["networks"]["apiVip"] == "192.168.126.10"
    assert as_json["node"]["master-0"]["name"] == "master-0.one.example.com"
    view(folder, "--origin", "-o", "json")
    as_json = json.loads(capsys.readouterr().out)
    view(folder, "--origin", "-o", "yaml")
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    told = {one["path"]: one for one in as_json}
    assert told["name"] == {"path": "name", "value": "one", "origin": "given"}
    assert told["domain"]["from"] == "name, baseDomain"


def test_a_wrong_file_has_status_3(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "cluster.yaml").write_text("nmae: x\n")
    assert view(tmp_path) == 3
    assert "nmae is unknown; did you mean name?" in capsys.readouterr().err


def explain(*arguments: str) -> int:
    return main.run(["explain", *arguments])


def test_each_kind_of_thing_is_explained(capsys: Captured) -> None:
    for asked, first in (
        (["05"], "05  (stage)"),
        (["pki"], "05  (stage)"),
        (["--etcd-prefix"], "--etcd-prefix  (flag, stage 07)"),
        (["kubelet", "--node-ip"], "kubelet --node-ip  (flag, stage 08)"),
        (["kubelet-signer"], "kubelet-signer  (certificate, stage 05)"),
        (["PKI-01"], "PKI-01  (rule, error for kubernetes and openshift, stage 05)"),
        (["P4"], "P4  (condition, before the pivot, twice, stage 13)"),
        (["UMB745"], "UMB745  (code, the cluster while it is built: applying, CSRs, etcd, pivot; exit status 7)"),
        (["/etc/kubernetes/kubelet.conf"], "kubelet.conf  (file, stage 08)"),
    ):
        assert explain(*asked) == 0
        printed = capsys.readouterr()
        assert printed.out.splitlines()[0] == first
        assert printed.err == ""


def test_an_unknown_name_is_three_lines_with_the_nearest_ones(capsys: Captured) -> None:
    assert explain("kubelet-singer") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[0] == "UMB750 nothing is called 'kubelet-singer'"
    assert "kubelet-signer" in printed.err.splitlines()[1]
    assert printed.err.splitlines()[2] == "  next: umbilical explain kubelet-signer"


def test_a_directory_brings_its_own_addresses(tmp_path: Path, capsys: Captured) -> None:
    folder = make_directory(tmp_path / "c")
    assert explain("kube-apiserver-bootstrap.yaml", "--dir", str(folder), "-o", "json") == 0
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert f"--cacert {folder}/artifacts/tls/bundles/" in entry["by_hand"]
    assert "BOOTSTRAP" not in entry["by_hand"]


def test_everything_can_be_listed_by_kind_and_nothing_asked_is_wrong_usage(capsys: Captured) -> None:
    assert explain("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "rule         PKI-01" in lines
    assert "code         UMB745" in lines
    assert explain() == 2
    assert "--list" in capsys.readouterr().err
