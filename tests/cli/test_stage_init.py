"""`umbilical stage init` as a user runs it."""

from pathlib import Path

import pytest
from tests.support import hardway

from umbilical.cli import main
from umbilical.hardway.workspace import read_config


def init(folder: Path, *arguments: str | Path) -> int:
    return main.run(["stage", "init", "--dir", str(folder), *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ([], ("kubernetes", "lab", 3, 2)),
        (["--masters", "1", "--workers", "0"], ("kubernetes", "lab", 1, 0)),
        (["--profile", "openshift"], ("openshift", "libvirt", 3, 2)),
        (["--profile", "kubernetes", "--machines", "libvirt"], ("kubernetes", "libvirt", 3, 2)),
    ],
)
def test_a_file_is_written_that_can_be_read(
    tmp_path: Path, arguments: list[str], meant: tuple[str, str, int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new"
    assert init(folder, *arguments) == 0
    cluster = read_config(folder).cluster
    assert (cluster.profile.value, cluster.machines.value, len(cluster.masters), len(cluster.workers)) == meant
    printed = capsys.readouterr()
    assert printed.out == f"{folder}/cluster.yaml\n"
    assert f"umbilical stage plan --dir {folder}" in printed.err
    assert (folder / "cluster.yaml").stat().st_mode & 0o777 == 0o644


def test_a_file_that_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(tmp_path, "--name", "one") == 0
    assert init(tmp_path, "--name", "two") == 3
    assert "UMB801" in capsys.readouterr().err
    assert read_config(tmp_path).cluster.name == "one"
    assert init(tmp_path, "--name", "two", "--overwrite") == 0
    assert read_config(tmp_path).cluster.name == "two"


def test_public_keys_are_taken_up_and_private_ones_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "id.pub").write_text(f"# mine\n{hardway.SSH_KEY}\n")
    (tmp_path / "id").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nsupersecret\n")
    assert init(tmp_path / "c", "--ssh-key", tmp_path / "id.pub") == 0
    assert read_config(tmp_path / "c").cluster.access.ssh_keys == (hardway.SSH_KEY,)
    assert init(tmp_path / "d", "--ssh-key", tmp_path / "id") == 2
    assert "supersecret" not in capsys.readouterr().err


def test_a_key_file_that_is_no_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "id.pub").write_bytes(b"\xff\xfe")
    assert init(tmp_path / "c", "--ssh-key", tmp_path / "id.pub") == 3
    assert "UMB002" in capsys.readouterr().err


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    assert init(tmp_path / "c", "--profile", "openshift", "--machines", "lab") == 3
    assert init(tmp_path / "c", "--name", "Not A Label") == 3
    assert not (tmp_path / "c").exists()
