"""`umbilical config` and `umbilical explain`."""

from functools import partial
from pathlib import Path

import jsonschema
import pytest
import yaml
from tests.support.commands import Run
from tests.support.hardway_workspace import make_directory

from umbilical.hardway.config.reading import schema


def test_the_schema_is_printed(umbilical: Run) -> None:
    value = umbilical("config", "schema").json()
    jsonschema.Draft202012Validator.check_schema(value)
    assert value == schema()


@pytest.fixture
def view(umbilical: Run) -> Run:
    return partial(umbilical, "config", "view", "--dir")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "c", name="one")


def test_a_table_has_every_value(folder: Path, view: Run) -> None:
    rows = dict(line.split(maxsplit=1) for line in view(folder).lines if len(line.split()) > 1)
    assert rows["domain"] == "one.example.com"
    assert rows["hasKubeProxy"] == "true"
    assert "origin" not in rows["key"]


def test_origins_are_columns(folder: Path, view: Run) -> None:
    lines = {line.split()[0]: line.split()[1:] for line in view(folder, "--origin").lines}
    assert lines["key"] == ["value", "origin", "from"]
    assert lines["name"] == ["one", "given"]
    assert lines["baseDomain"] == ["example.com", "default"]
    assert lines["domain"] == ["one.example.com", "computed", "name,", "baseDomain"]


def test_json_and_yaml_have_the_same_tree_and_the_same_origins(folder: Path, view: Run) -> None:
    as_json = view(folder, "-o", "json").json()
    assert yaml.safe_load(view(folder, "-o", "yaml").out) == as_json
    assert as_json["networks"]["apiVip"] == "192.168.126.10"
    assert as_json["node"]["master-0"]["name"] == "master-0.one.example.com"
    as_json = view(folder, "--origin", "-o", "json").json()
    assert yaml.safe_load(view(folder, "--origin", "-o", "yaml").out) == as_json
    told = {one["path"]: one for one in as_json}
    assert told["name"] == {"path": "name", "value": "one", "origin": "given"}
    assert told["domain"]["from"] == "name, baseDomain"


def test_a_wrong_file_has_status_3(tmp_path: Path, view: Run) -> None:
    (tmp_path / "cluster.yaml").write_text("nmae: x\n")
    assert "nmae is unknown; did you mean name?" in view(tmp_path, status=3).err


@pytest.fixture
def explain(umbilical: Run) -> Run:
    return partial(umbilical, "explain")


def test_each_kind_of_thing_is_explained(explain: Run) -> None:
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
        printed = explain(*asked)
        assert printed.out.splitlines()[0] == first
        assert printed.err == ""


def test_an_unknown_name_is_three_lines_with_the_nearest_ones(explain: Run) -> None:
    printed = explain("kubelet-singer", status=2)
    assert printed.out == ""
    assert printed.err.splitlines()[0] == "UMB750 found no explanation for 'kubelet-singer'"
    assert "kubelet-signer" in printed.err.splitlines()[1]
    assert printed.err.splitlines()[2] == "  next: umbilical explain kubelet-signer"


def test_a_directory_brings_its_own_addresses(tmp_path: Path, explain: Run) -> None:
    folder = make_directory(tmp_path / "c")
    (entry,) = explain("kube-apiserver-bootstrap.yaml", "--dir", folder, "-o", "json").json()["entries"]
    assert f"--cacert {folder}/artifacts/tls/bundles/" in entry["by_hand"]
    assert "BOOTSTRAP" not in entry["by_hand"]


def test_everything_can_be_listed_by_kind_and_nothing_asked_is_wrong_usage(explain: Run) -> None:
    lines = explain("--list").lines
    assert "rule         PKI-01" in lines
    assert "code         UMB745" in lines
    assert "--list" in explain(status=2).err
