"""The files of a release: the lock, the SBOM, notes, checksums, and what a release is refused for."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement

import lock
import release
import sbom
import wheels
from umbilical import __version__

EXTRAS: Final = ("k8s", "hosted", "lab", "hardway")
EPOCH: Final = 1_700_000_000
LONG_SECONDS: Final = 900
PACKAGES: Final = lock.read(lock.LOCK.read_text())


def test_the_lock_has_every_package_of_an_installation_in_a_version_that_fits(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *(text for extra in EXTRAS for text in project["optional-dependencies"][extra])]
    wanted = [one for one in map(Requirement, texts) if one.name != lock.OURSELVES]
    locked = {package.name.lower(): package for package in PACKAGES}
    assert [str(one) for one in wanted if locked[one.name.lower()].version not in one.specifier] == []
    direct = {package.name for package in PACKAGES if lock.OURSELVES in package.wanted_by}
    assert direct == {one.name.lower() for one in wanted}


def test_every_package_of_the_lock_has_hashes_and_an_origin_within_it() -> None:
    known = {package.name for package in PACKAGES} | {lock.OURSELVES}
    assert [package.name for package in PACKAGES if not package.hashes] == []
    assert [
        package.name for package in PACKAGES if not package.wanted_by or not known.issuperset(package.wanted_by)
    ] == []


def test_a_line_that_is_not_of_a_lock_is_named() -> None:
    with pytest.raises(ValueError, match="'--index-url"):
        lock.read("--index-url https://example.com/simple\n")


def test_the_sbom_is_valid_and_names_every_package_below_what_asked_for_it() -> None:
    text = sbom.render(__version__, PACKAGES, EPOCH)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    assert [one["purl"] for one in document["components"]] == [f"pkg:pypi/{one.name}@{one.version}" for one in PACKAGES]
    below = {one["ref"]: one.get("dependsOn", []) for one in document["dependencies"]}
    assert "cffi" in below["cryptography"]
    assert "cffi" not in below[lock.OURSELVES]
    assert set(below) == {package.name for package in PACKAGES} | {lock.OURSELVES}


def test_the_sbom_is_the_same_in_every_build_of_the_same_commit() -> None:
    assert sbom.render("1.0", PACKAGES, EPOCH) == sbom.render("1.0", PACKAGES, EPOCH)
    assert sbom.render("1.0", PACKAGES, EPOCH) != sbom.render("1.0", PACKAGES[1:], EPOCH)


def test_notes_are_the_section_of_the_version(repository: Path) -> None:
    later, earlier = "## [Unreleased]\n\nLater.\n\n", "## [1.0.0] - 2025-01-02\n"
    text = f"# Changelog\n\n{later}## [1.1.0] - 2026-01-02\n\nThis.\n\n### Fixed\n\n- It.\n\n{earlier}"
    assert release.notes(text, "1.1.0") == "# Umbilical 1.1.0\n\nThis.\n\n### Fixed\n\n- It.\n"
    assert release.notes((repository / "CHANGELOG.md").read_text(), __version__).startswith(
        f"# Umbilical {__version__}\n"
    )


@pytest.mark.parametrize(
    "text", ["## [1.1.0] - 2026-01-02\n\n## [1.0.0] - 2025-01-02\n\nOld.\n", "## [1.1.0]\n\nNo day.\n"]
)
def test_a_version_without_notes_is_refused(text: str) -> None:
    with pytest.raises(release.ReleaseRefused, match=r"UMB935 version 1\.1\.0 has no notes\n  why: .+\n  next: .+"):
        release.notes(text, "1.1.0")


def test_a_tree_that_differs_from_its_commit_is_refused(tmp_path: Path) -> None:
    _git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("one")
    _git(tmp_path, "add", "file")
    _git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "-m", "First")
    digest, seconds = release.commit(tmp_path)
    assert (len(digest), seconds > EPOCH) == (40, True)
    (tmp_path / "file").write_text("two")
    with pytest.raises(
        release.ReleaseRefused, match=r"UMB935 .+\n  why: files that differ: 1, the first: M file\n  next: .+"
    ):
        release.commit(tmp_path)


def test_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    (tmp_path / release.CHECKSUMS).write_text(release.checksums(tmp_path))
    command = ["sha256sum", "--check", "--strict", release.CHECKSUMS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "one: OK\ntwo: OK\n")


@pytest.mark.soak
@pytest.mark.timeout(2 * LONG_SECONDS)
def test_two_builds_of_a_commit_are_the_same_bytes_whatever_the_folder_and_umask(
    repository: Path, tmp_path: Path
) -> None:
    made = {}
    for umask in (0o022, 0o077):
        tree = tmp_path / f"tree-{umask:o}"
        before = os.umask(umask)
        try:
            _git(tmp_path, "clone", "--quiet", str(repository), str(tree))
            command = [sys.executable, "tools/release.py", "--out", "dist"]
            subprocess.run(command, cwd=tree, env=_environment(tree), timeout=LONG_SECONDS, check=True)
        finally:
            os.umask(before)
        made[umask] = (tree / "dist" / release.CHECKSUMS).read_text()
    assert made[0o022] == made[0o077]
    assert len(made[0o022].splitlines()) >= 6


@pytest.mark.soak
def test_a_wheel_of_another_version_is_refused(tmp_path: Path) -> None:
    wheel = wheels.build("pure", tmp_path)
    with pytest.raises(release.ReleaseRefused, match=r"UMB935 .+ is not version 9\.9\.9\n  why: .+\n  next: .+"):
        release.check_wheel(wheel, lock.LOCK, "9.9.9")


def _environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree / "src")}


def _git(folder: Path, *words: str) -> None:
    program = shutil.which("git")
    assert program
    subprocess.run([program, "-C", str(folder), *words], capture_output=True, timeout=60, check=True)
