"""What git would take: asked of a real repository."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.hardway import cluster

from umbilical.assets.tree import Asset
from umbilical.hardway.judges.exposure import exposed, secret_files

ASSETS = {
    "tls/admin.key": Asset("tls/admin.key", b"", 0o600),
    "tls/admin.crt": Asset("tls/admin.crt", b"", 0o644),
}
SECRETS = (
    ".umbilical/admin.kubeconfig",
    ".umbilical/identity.json",
    "artifacts/tls/admin.key",
    "pull-secret.json",
)


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, timeout=60)


@pytest.fixture
def repository_folder(tmp_path: Path) -> Path:
    _git(tmp_path, "init", "-q")
    return tmp_path


def test_keys_and_the_pull_secret_are_secret_and_certificates_are_not() -> None:
    assert tuple(sorted(secret_files(cluster(), ASSETS))) == SECRETS


def test_a_pull_secret_elsewhere_is_not_in_the_directory() -> None:
    of = cluster()
    for place in ("/root/pull-secret.json", "../pull-secret.json"):
        moved = replace(of, access=replace(of.access, pull_secret_file=place))
        assert place not in secret_files(moved, {})


def test_without_git_nothing_is_exposed(tmp_path: Path) -> None:
    assert exposed(tmp_path, cluster(), ASSETS) == ()


def test_below_a_work_tree_everything_is_until_it_is_ignored(repository_folder: Path) -> None:
    folder = repository_folder / "clusters" / "one"
    folder.mkdir(parents=True)
    assert exposed(folder, cluster(), ASSETS) == SECRETS
    (folder / ".gitignore").write_text("artifacts\n.umbilical\n")
    assert exposed(folder, cluster(), ASSETS) == ("pull-secret.json",)
    (repository_folder / ".gitignore").write_text("*.json\n")
    assert exposed(folder, cluster(), ASSETS) == ()


def test_what_is_tracked_already_is_exposed_whatever_is_ignored(repository_folder: Path) -> None:
    (repository_folder / "artifacts" / "tls").mkdir(parents=True)
    (repository_folder / "artifacts" / "tls" / "admin.key").write_text("")
    _git(repository_folder, "add", "artifacts")
    (repository_folder / ".gitignore").write_text("artifacts\n.umbilical\npull-secret.json\n")
    assert exposed(repository_folder, cluster(), ASSETS) == ("artifacts/tls/admin.key",)


def test_where_git_cannot_answer_nothing_counts_as_ignored(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    assert exposed(tmp_path, cluster(), ASSETS) == SECRETS
