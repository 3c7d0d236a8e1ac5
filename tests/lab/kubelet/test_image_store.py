"""Stores of images: shared files, own databases, the best one chosen, old ones forgotten."""

import os
from pathlib import Path

import pytest

from umbilical.lab.kubelet.image_store import KEPT, ImageStore

BLOB = "io.containerd.content.v1.content/blobs/sha256/abc"
DATABASE = "io.containerd.metadata.v1.bolt/meta.db"
LAYER = "io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs/usr/bin/x"
LINK = "io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs/bin"


def containerd_root(path: Path) -> Path:
    for name in (BLOB, DATABASE, LAYER, "io.containerd.grpc.v1.introspection/uuid"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)
    (path / LINK).symlink_to("usr/bin")
    return path


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "cache", "1.6-overlayfs")


def test_an_empty_cache_has_nothing(store: ImageStore, tmp_path: Path) -> None:
    assert store.lay(["a.tar"], tmp_path / "node") == set()
    assert not (tmp_path / "node").exists()


def test_a_node_shares_files_and_has_databases_of_its_own(store: ImageStore, tmp_path: Path) -> None:
    first = containerd_root(tmp_path / "first")
    store.keep(["a.tar", "b.tar"], first)
    assert store.lay(["a.tar"], tmp_path / "second") == {"a.tar", "b.tar"}
    for name in (BLOB, LAYER):
        assert (tmp_path / "second" / name).samefile(first / name)
    assert (tmp_path / "second" / DATABASE).read_text() == DATABASE
    assert not (tmp_path / "second" / DATABASE).samefile(first / DATABASE)
    assert os.readlink(tmp_path / "second" / LINK) == "usr/bin"
    assert not (tmp_path / "second" / "io.containerd.grpc.v1.introspection").exists(), "an identity is not shared"


def test_the_store_with_most_of_what_is_wanted_is_taken(store: ImageStore, tmp_path: Path) -> None:
    root = containerd_root(tmp_path / "first")
    store.keep(["a.tar", "b.tar"], root)
    store.keep(["b.tar", "c.tar"], root)
    assert store.lay(["a.tar", "b.tar", "d.tar"], tmp_path / "second") == {"a.tar", "b.tar"}


def test_other_versions_and_snapshotters_are_not_mixed(store: ImageStore, tmp_path: Path) -> None:
    store.keep(["a.tar"], containerd_root(tmp_path / "first"))
    other = ImageStore(tmp_path / "cache", "1.6-native")
    assert other.lay(["a.tar"], tmp_path / "second") == set()


def test_only_the_newest_are_kept_and_keeping_twice_is_fine(store: ImageStore, tmp_path: Path) -> None:
    root = containerd_root(tmp_path / "first")
    for number in range(KEPT + 2):
        for _ in range(2):
            store.keep([f"{number}.tar"], root)
        for path in (tmp_path / "cache" / "stores").iterdir():
            os.utime(path, (path.stat().st_mtime - 10, path.stat().st_mtime - 10))
    assert len(list((tmp_path / "cache" / "stores").iterdir())) == KEPT
    assert store.lay([f"{KEPT + 1}.tar"], tmp_path / "second") == {f"{KEPT + 1}.tar"}


def test_a_cache_on_another_file_system_is_copied(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    store.keep(["a.tar"], containerd_root(tmp_path / "first"))
    store.lay(["a.tar"], tmp_path / "second")
    assert (tmp_path / "second" / BLOB).read_text() == BLOB
    assert not (tmp_path / "second" / BLOB).samefile(tmp_path / "first" / BLOB)


def test_a_store_that_goes_meanwhile_is_as_none(store: ImageStore, tmp_path: Path) -> None:
    store.keep(["a.tar"], containerd_root(tmp_path / "first"))
    (kept,) = (tmp_path / "cache" / "stores").iterdir()
    # A node's place that is taken already makes the copy fail half-way.
    target = tmp_path / "second"
    (target / BLOB).parent.mkdir(parents=True)
    assert store.lay(["a.tar"], target) == set()
    assert not target.exists()
    assert kept.is_dir()


def test_what_a_killed_process_left_half_made_goes_after_a_while(store: ImageStore, tmp_path: Path) -> None:
    old, young = (tmp_path / "cache" / "stores" / name for name in (".new-old", ".new-young"))
    for path in (old, young):
        path.mkdir(parents=True)
    os.utime(old, (1, 1))
    store.keep(["a.tar"], containerd_root(tmp_path / "first"))
    assert (old.exists(), young.exists()) == (False, True)
