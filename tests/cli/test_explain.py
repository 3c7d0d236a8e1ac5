"""`umbilical explain` as a user runs it."""

import json
from pathlib import Path

import pytest
from tests.support.hardway_workspace import make_directory

from umbilical.cli import main


def explain(*arguments: str) -> int:
    return main.run(["explain", *arguments])


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        (["05"], "05  (stage)"),
        (["pki"], "05  (stage)"),
        (["--etcd-prefix"], "--etcd-prefix  (flag, stage 07)"),
        (["kubelet", "--node-ip"], "kubelet --node-ip  (flag, stage 08)"),
        (["kubelet-signer"], "kubelet-signer  (certificate, stage 05)"),
        (["PKI-01"], "PKI-01  (rule, error for kubernetes and openshift, stage 05)"),
        (["P4"], "P4  (condition, before the pivot, twice, stage 13)"),
        (["UMB745"], "UMB745  (code, the cluster while it is built: applying, CSRs, etcd, pivot; exit status 7)"),
        (["/etc/kubernetes/kubelet.conf"], "kubelet.conf  (file, stage 08)"),
    ],
)
def test_each_kind_of_thing_is_explained(asked: list[str], first: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(*asked) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == first
    assert printed.err == ""


def test_an_unknown_name_is_three_lines_with_the_nearest_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain("kubelet-singer") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[0] == "UMB750 nothing is called 'kubelet-singer'"
    assert "kubelet-signer" in printed.err.splitlines()[1]
    assert printed.err.splitlines()[2] == "  next: umbilical explain kubelet-signer"


def test_a_directory_brings_its_own_addresses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_directory(tmp_path / "c")
    assert explain("kube-apiserver-bootstrap.yaml", "--dir", str(folder), "-o", "json") == 0
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert f"--cacert {folder}/artifacts/tls/bundles/" in entry["by_hand"]
    assert "BOOTSTRAP" not in entry["by_hand"]


def test_everything_can_be_listed_by_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "rule         PKI-01" in lines
    assert "code         UMB745" in lines


def test_nothing_asked_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain() == 2
    assert "--list" in capsys.readouterr().err
