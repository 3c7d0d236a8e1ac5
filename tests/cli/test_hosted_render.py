"""`umbilical hosted render` as a user runs it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.hosted_workloads import as_bytes, container, deployment

from umbilical.assets.hosted.spec_example import EXAMPLE
from umbilical.cli import main

SMALL = EXAMPLE.replace("keyType: rsa-2048", "keyType: ecdsa-p256")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A spec whose keys are drawn quickly."""
    path = tmp_path / "guest.yaml"
    path.write_text(SMALL)
    return path


def render(*arguments: str | Path) -> int:
    return main.run(["hosted", "render", *map(str, arguments)])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_example_is_printed_and_can_be_rendered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert render("--example") == 0
    printed = capsys.readouterr().out
    assert printed == EXAMPLE
    (tmp_path / "spec.yaml").write_text(printed)
    assert render("--spec", tmp_path / "spec.yaml", "--out", tmp_path / "out") == 0


def test_each_file_is_written_with_its_mode_and_told_in_a_line(
    spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert render("--spec", spec, "--out", tmp_path / "out") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == len(contents(tmp_path / "out"))
    for mode, size, path in lines:
        file = tmp_path / "out" / path
        assert f"{file.stat().st_mode & 0o777:04o}" == mode
        assert file.stat().st_size == int(size)
    assert {mode for mode, _, path in lines if "/secret-" in path} == {"0600"}


def test_objects_are_printed_and_nothing_is_written(
    spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert render("--spec", spec, "--out", "-") == 0
    documents: list[Any] = list(yaml.safe_load_all(capsys.readouterr().out))
    assert len(documents) > 30
    assert all(document["metadata"]["name"] for document in documents)
    assert [path.name for path in tmp_path.iterdir()] == ["guest.yaml"]


def test_certificates_that_are_kept_make_a_second_rendering_the_same(spec: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert render("--spec", spec, "--out", tmp_path / name, "--pki", tmp_path / "pki") == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_kustomize_gets_its_files(spec: Path, tmp_path: Path) -> None:
    assert render("--spec", spec, "--out", tmp_path / "out", "--format", "kustomize") == 0
    found = [path for path in contents(tmp_path / "out") if path.endswith("kustomization.yaml")]
    assert found == [
        "hosted/kustomization.yaml",
        "management/kustomization.yaml",
        "management/patches/kustomization.yaml",
    ]


def test_a_manifest_is_found_beside_the_spec(spec: Path, tmp_path: Path) -> None:
    (tmp_path / "kas.yaml").write_bytes(as_bytes(deployment()))
    spec.write_text(SMALL.replace("  # manifest: kube-apiserver.yaml", "  manifest: kas.yaml"))
    assert render("--spec", spec, "--out", tmp_path / "out") == 0
    patched = yaml.safe_load((tmp_path / "out/management/deployment-kube-apiserver.yaml").read_bytes())
    assert container(patched, "konnectivity-server")


@pytest.mark.parametrize(
    "change", [("replicas: 3", "replicas: 0"), ("  # manifest: kube-apiserver.yaml", "  manifest: none.yaml")]
)
def test_bad_input_changes_nothing(
    spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str]
) -> None:
    spec.write_text(SMALL.replace(*change))
    assert render("--spec", spec, "--out", tmp_path / "out", "--pki", tmp_path / "pki") == 3
    assert capsys.readouterr().err.count("\n") == 3
    assert [path.name for path in tmp_path.iterdir()] == ["guest.yaml"]


def test_files_that_exist_are_not_replaced_and_certificates_then_stay_too(
    spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--spec", spec, "--out", tmp_path / "out", "--pki", tmp_path / "pki")
    assert render(*arguments) == 0
    before = contents(tmp_path)
    assert render(*arguments, "--rotate-signers") == 3
    assert "UMB801" in capsys.readouterr().err
    assert contents(tmp_path) == before
    assert render(*arguments, "--rotate-signers", "--overwrite") == 0
    assert contents(tmp_path) != before


def test_files_of_an_earlier_rendering_are_told_of(
    spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert render("--spec", spec, "--out", tmp_path / "out") == 0
    spec.write_text(SMALL.replace("strategy: route", "strategy: loadbalancer"))
    capsys.readouterr()
    assert render("--spec", spec, "--out", tmp_path / "out", "--overwrite") == 0
    assert "management/route-konnectivity-server.yaml is not part of this rendering" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--rotate-signers", "--retire-signers"])
def test_signers_are_changed_in_a_directory_only(spec: Path, tmp_path: Path, flag: str) -> None:
    assert render("--spec", spec, "--out", tmp_path / "out", flag) == 2


def test_what_is_left_out_is_told(spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec.write_text(SMALL.replace("    addresses: [172.30.12.7]\n", ""))
    assert render("--spec", spec, "--out", tmp_path / "out") == 0
    assert "note: addresses of openshift-apiserver are not known" in capsys.readouterr().err


def test_a_spec_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert render("--spec", tmp_path / "none.yaml", "--out", "-") == 3
    assert "UMB002" in capsys.readouterr().err
