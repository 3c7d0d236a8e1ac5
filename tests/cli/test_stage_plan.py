"""`umbilical stage plan` as a user runs it."""

import json
from pathlib import Path

import pytest
from tests.support.hardway_workspace import contents, make_directory

from umbilical.cli import main
from umbilical.cli.stage_options import utc_now
from umbilical.hardway import rendering


def plan(folder: Path, *arguments: str) -> int:
    return main.run(["stage", "plan", "--dir", str(folder), *arguments])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_directory(tmp_path_factory.mktemp("plan") / "c")
    rendering.write(folder, rendering.render(folder, utc_now()))
    return folder


def test_everything_is_created_at_first_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_directory(tmp_path / "c")
    before = contents(folder)
    assert plan(folder) == 0
    printed = capsys.readouterr()
    assert "+ ignition/bootstrap.ign\n" in printed.out
    assert "+ tls/etcd-signer.crt: CN=etcd-signer, until " in printed.out
    assert printed.err.endswith(" created, 0 changed, 0 removed\n")
    assert contents(folder) == before


def test_nothing_to_do_is_told_and_has_status_0(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(written, "--exit-code") == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "0 created, 0 changed, 0 removed\n")


def test_a_change_is_told_by_what_it_says(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_directory(written, networks__apiVip="192.168.126.20")
    assert plan(written, "--exit-code") == 1
    printed = capsys.readouterr()
    assert (
        "~ tls/kube-apiserver-lb-server.crt\n    ~ names\n        -192.168.126.10\n        +192.168.126.20\n"
        in printed.out
    )
    assert "~ ignition/bootstrap.ign\n    ~ file /etc/kubernetes/" in printed.out
    assert "    ~ key: key differs\n" in printed.out
    assert "PRIVATE KEY" not in printed.out
    assert "note: kube-apiserver-lb-server would be made anew: its names changed" in printed.err
    assert plan(written) == 0


def test_only_names_of_files_can_be_asked_for(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_directory(written, networks__apiVip="192.168.126.20")
    plan(written, "--stat")
    assert all(line.startswith("~ ") for line in capsys.readouterr().out.splitlines())


def test_json_has_the_same_for_programs(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_directory(written, networks__apiVip="192.168.126.20")
    assert plan(written, "-o", "json") == 0
    printed = capsys.readouterr()
    value = json.loads(printed.out)
    assert printed.err == ""
    assert (value["kind"], value["releaseIsRead"]) == ("Plan", True)
    assert value["summary"]["changed"] == len(value["files"]) > 3
    assert {one["id"] for one in value["renewed"]} >= {"kube-apiserver-lb-server"}


def test_a_release_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_directory(tmp_path / "c", "openshift", release=False)
    assert plan(folder, "--stat") == 0
    printed = capsys.readouterr()
    assert f"note: the release is not extracted to {folder}/release" in printed.err
    assert "ignition/" not in printed.out


def test_a_directory_of_no_cluster_is_a_fault_of_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(tmp_path) == 3
    assert "UMB701" in capsys.readouterr().err
