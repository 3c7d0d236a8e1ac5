"""Stores of images: shared files, own databases, imported by the first node and shared with the next."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.fixture_types import Patch
from tests.support.labs import running

from umbilical.fault import LabError
from umbilical.lab.images import Image
from umbilical.lab.kubelet import archives, containerd, node_runtime
from umbilical.lab.kubelet.node_runtime import KEPT, ImageStore, find_cni
from umbilical.lab.lab import Lab
from umbilical.lab.state import RunnerKind

BLOB = "io.containerd.content.v1.content/blobs/sha256/abc"
DATABASE = "io.containerd.metadata.v1.bolt/meta.db"
LAYER = "io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs/usr/bin/x"
IMAGES = ["localhost/etcd:lab", "localhost/pause:1", "localhost/shell:lab"]
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
    other = ImageStore(tmp_path / "cache", "1.6-native")
    assert other.lay(["a.tar"], tmp_path / "node") == set()
    assert not (tmp_path / "node").exists()


def test_only_the_newest_are_kept_and_keeping_twice_is_fine(store: ImageStore, tmp_path: Path) -> None:
    root = containerd_root(tmp_path / "first")
    for number in range(KEPT + 2):
        for _ in range(2):
            store.keep([f"{number}.tar"], root)
        for path in (tmp_path / "cache" / "stores").iterdir():
            os.utime(path, (path.stat().st_mtime - 10, path.stat().st_mtime - 10))
    assert len(list((tmp_path / "cache" / "stores").iterdir())) == KEPT
    assert store.lay([f"{KEPT + 1}.tar"], tmp_path / "second") == {f"{KEPT + 1}.tar"}


def test_a_cache_on_another_file_system_is_copied(store: ImageStore, tmp_path: Path, monkeypatch: Patch) -> None:
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


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: Patch) -> Iterator[Lab]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "etcd"
    program.write_bytes(b"not run here")
    # Without the image of our own, which takes Python: this is about how images get onto nodes.
    image = Image("localhost/etcd:lab", {"etcd": program})
    monkeypatch.setattr(node_runtime, "lab_images", lambda _: {image.reference: image})
    with running(tmp_path / "lab", runner=RunnerKind.KUBELET) as lab:
        yield lab


def test_an_image_that_is_imported_anew_takes_the_place_of_the_old_one() -> None:
    present = {"umbilical-lab-old.tar", "kube-apiserver-lab-1.tar"}
    assert node_runtime._all_in(["umbilical-lab-new.tar", "pause-1-x.tar"], present) == {
        "umbilical-lab-new.tar",
        "pause-1-x.tar",
        "kube-apiserver-lab-1.tar",
    }


def start(lab: Lab, node: str) -> list[str]:
    plugins = find_cni()
    assert plugins is not None
    snapshotter = containerd.choose_snapshotter(lab, node)
    lab.write(node, containerd.CONFIG_PATH, containerd.config(snapshotter, plugins).encode())
    node_runtime.start_with_images(lab, node, snapshotter)
    # The CRI plugin lists each by its digest as well.
    listed = containerd.ctr(lab, node, "images", "ls", "-q").check().text.split()
    return [name for name in listed if not name.startswith("sha256:")]


@pytest.mark.root
@pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr")
def test_the_second_node_imports_nothing(lab: Lab, monkeypatch: Patch) -> None:
    assert start(lab, "bootstrap") == IMAGES
    (store,) = (archives.cache_directory() / "stores").iterdir()
    assert store.name.startswith(containerd.version(lab, "bootstrap"))
    folder = lab.directory.node_root("bootstrap") / node_runtime.FOLDER_ON_NODE.lstrip("/")
    assert list(folder.iterdir()) == [], "archives go when they are imported"

    def refuse(*_: object) -> None:
        raise AssertionError("imported although a store has it")

    monkeypatch.setattr(containerd, "import_image", refuse)
    assert start(lab, "master-0") == IMAGES
    lab.stop("master-0", containerd.PROCESS)
    assert start(lab, "master-0") == IMAGES


@pytest.mark.root
@pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr")
def test_a_killed_import_is_done_anew_and_a_dead_containerd_told_of(lab: Lab, monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(containerd, "import_image", die)
        with pytest.raises(KeyboardInterrupt):
            start(lab, "bootstrap")
    lab.stop("bootstrap", containerd.PROCESS)
    assert start(lab, "bootstrap") == IMAGES
    lab.write("master-0", containerd.CONFIG_PATH, b"this is no configuration")
    with pytest.raises(LabError, match=r"UMB842 containerd on master-0 exited with 1") as refused:
        containerd.start(lab, "master-0")
    assert refused.value.remedy.endswith("logs/master-0/containerd.log")
    lab.write("master-0", containerd.CONFIG_PATH, containerd.config("unheard-of", Path("/usr/lib/cni")).encode())
    with pytest.raises(LabError, match=r"UMB842 containerd on master-0 has no CRI plugin(.|\n)*unheard-of"):
        containerd.start(lab, "master-0")
