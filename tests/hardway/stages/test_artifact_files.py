"""Files of a stage: written where they differ, swept where nobody needs them, judged as they lie there."""

from pathlib import Path

import pytest
from tests.support.made_up_stages import make_site

from umbilical.assets.tree import Asset
from umbilical.checks.check import Outcome
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Undo
from umbilical.hardway.stages import artifact_files


def _site(folder: Path) -> Site:
    assets = [
        Asset("manifests/01.yaml", b"one", 0o644),
        Asset("manifests/02.yaml", b"two", 0o600),
        Asset("auth/admin.kubeconfig", b"three", 0o600),
    ]
    files = {7: tuple(asset.path for asset in assets)}
    return make_site(folder, assets={asset.path: asset for asset in assets}, files=files)


def _write(site: Site) -> None:
    for step in artifact_files.writing_steps(site, 7):
        step.act()


def _verdict(site: Site) -> tuple[Outcome, str]:
    verdict = artifact_files.written_check(7).judge(site)
    return verdict.outcome, verdict.evidence


def test_there_is_a_step_for_each_folder_with_its_inverse(tmp_path: Path) -> None:
    steps = artifact_files.writing_steps(_site(tmp_path), 7, "in time")
    assert [(step.title, step.undo) for step in steps] == [
        ("write 1 file to artifacts/auth, in time", Undo("remove-files", {"paths": ["auth/admin.kubeconfig"]})),
        (
            "write 2 files to artifacts/manifests, in time",
            Undo("remove-files", {"paths": ["manifests/01.yaml", "manifests/02.yaml"]}),
        ),
    ]
    assert steps[0].command == "install -D -m 0600 /dev/stdin artifacts/auth/admin.kubeconfig"


def test_files_are_written_with_their_modes_and_folders_for_the_owner(tmp_path: Path) -> None:
    site = _site(tmp_path)
    _write(site)
    path = tmp_path / "artifacts" / "manifests" / "01.yaml"
    assert path.read_bytes() == b"one"
    assert path.stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "artifacts").stat().st_mode & 0o777 == 0o700
    assert _verdict(site) == (Outcome.PASSED, "")


def test_what_is_right_already_is_left_alone(tmp_path: Path) -> None:
    site = _site(tmp_path)
    _write(site)
    path = tmp_path / "artifacts" / "manifests" / "01.yaml"
    before = path.stat()
    _write(site)
    assert path.stat().st_ino == before.st_ino


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.unlink(), "manifests/01.yaml: No such file or directory"),
        (lambda path: path.write_bytes(b"x"), "manifests/01.yaml has another content"),
        (lambda path: path.chmod(0o666), "manifests/01.yaml has mode 0666, not 0644"),
        (lambda path: path.with_name("03.yaml").write_bytes(b"x"), "manifests/03.yaml is of no use any more"),
    ],
)
def test_each_way_to_be_wrong_is_seen_and_mended(tmp_path: Path, change: object, said: str) -> None:
    site = _site(tmp_path)
    _write(site)
    assert callable(change)
    change(tmp_path / "artifacts" / "manifests" / "01.yaml")
    assert _verdict(site) == (Outcome.FAILED, said)
    for step in (*artifact_files.writing_steps(site, 7), *artifact_files.sweeping_steps(site, 7)):
        step.act()
    assert _verdict(site)[0] is Outcome.PASSED


def test_keys_and_kubeconfigs_of_others_are_never_swept(tmp_path: Path) -> None:
    site = _site(tmp_path)
    _write(site)
    (tmp_path / "artifacts" / "auth" / "mine").write_bytes(b"x")
    assert artifact_files.sweeping_steps(site, 7) == []


def test_a_stage_without_files_is_not_judged(tmp_path: Path) -> None:
    assert artifact_files.written_check(4).judge(_site(tmp_path)).outcome is Outcome.SKIPPED


def test_a_hash_tells_content_and_mode(tmp_path: Path) -> None:
    site = _site(tmp_path)
    before = artifact_files.hashes(site, 7)
    site.assets = {**site.assets, "manifests/01.yaml": Asset("manifests/01.yaml", b"one", 0o600)}
    after = artifact_files.hashes(site, 7)
    assert [name for name in before if before[name] != after[name]] == ["manifests/01.yaml"]
