"""The doctor over files as they lie there."""

import shutil
from pathlib import Path

import pytest
from tests.support.hardway_patients import examined, make_patient, site_of
from tests.support.hardway_workspace import make_directory

from umbilical.hardway import workspace
from umbilical.hardway.doctor.artifacts import judged


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_patient(tmp_path_factory.mktemp("doctor") / "c", "kubernetes")


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "c")


def test_nothing_is_wrong_with_what_is_not_written_yet(tmp_path: Path) -> None:
    assert examined(make_directory(tmp_path / "new")) == []


def test_stages_that_wrote_nothing_are_judged_as_they_would_be(folder: Path) -> None:
    for name in ("ignition", "manifests", "static-pods", "late-static-pods"):
        shutil.rmtree(folder / "artifacts" / name)
    assert examined(folder) == []
    site, on_disk = site_of(folder), workspace.read_artifacts(folder)
    assert "ignition/bootstrap.ign" in judged(site, on_disk)


def test_a_file_that_is_gone_while_others_of_its_stage_are_there_is_missing(folder: Path) -> None:
    (folder / "artifacts" / "ignition" / "bootstrap.ign").unlink()
    found = examined(folder)
    assert found
    assert any("bootstrap.ign" in one.why for one in found)


def test_a_change_that_no_rule_knows_is_still_told(folder: Path) -> None:
    path = folder / "artifacts" / "infrastructure" / "dns" / "Corefile"
    path.write_bytes(path.read_bytes() + b"# mine\n")
    (found,) = examined(folder)
    assert found.id == "ART"
    assert found.why == "infrastructure/dns/Corefile changed"


def test_a_file_too_many_is_told_where_all_files_are_taken(folder: Path) -> None:
    path = folder / "artifacts" / "manifests" / "09-mine.yaml"
    path.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: kube-system}\n")
    (found,) = examined(folder)
    assert found.why == "manifests/09-mine.yaml left over"


def test_a_key_that_others_may_read_is_found_by_its_rule(folder: Path) -> None:
    (folder / "artifacts" / "tls" / "etcd-signer.key").chmod(0o644)
    assert [one.id for one in examined(folder)] == ["PKI-08"]
