"""`umbilical stage rotate` as a user runs it."""

from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.hardway_workspace import contents, make_directory

from umbilical.cli import main
from umbilical.cli.stage_options import utc_now
from umbilical.hardway import rendering
from umbilical.hardway.locking import locked


def rotate(folder: Path, *arguments: str) -> int:
    return main.run(["stage", "rotate", "--dir", str(folder), *arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "c")


def test_only_what_is_named_and_what_hangs_on_it_changes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rendering.write(folder, rendering.render(folder, utc_now()))
    before = contents(folder)
    assert rotate(folder, "kube-control-plane-signer") == 0
    after = contents(folder)
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == "kube-control-plane-signer: it was asked for"
    assert "kube-proxy: its signer changed" in printed.out
    changed = {name for name in before if before[name] != after[name]}
    assert "artifacts/tls/kube-control-plane-signer.key" in changed
    assert "artifacts/tls/bundles/kube-apiserver-complete-client-ca-bundle.crt" in changed
    assert all(name.startswith("artifacts/tls/") for name in changed - {".umbilical/lock"})
    assert "next: umbilical stage run" in printed.err


def test_what_is_due_is_asked_for_as_such(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rendering.keep(folder, rendering.render(folder, utc_now() - timedelta(days=3)))
    assert rotate(folder, "--due") == 0
    printed = capsys.readouterr()
    assert "kubelet-signer: it expired at" in printed.out
    assert "etcd-signer" not in printed.out
    assert rotate(folder, "--due") == 0
    assert "nothing was due" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "status"), [([], 2), (["nonsense"], 2)])
def test_what_is_not_named_or_not_known_is_refused(folder: Path, arguments: list[str], status: int) -> None:
    assert rotate(folder, *arguments) == status
    assert not (folder / "artifacts").exists()


def test_nobody_rotates_under_a_running_pipeline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with locked(folder, "somebody", utc_now().isoformat()):
        assert rotate(folder, "--due") != 0
    assert "UMB720" in capsys.readouterr().err


def test_a_directory_of_no_cluster_stays_as_it_is(tmp_path: Path) -> None:
    assert rotate(tmp_path, "--due") == 3
    assert list(tmp_path.iterdir()) == []
