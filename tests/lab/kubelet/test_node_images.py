"""A node's images: imported by the first node, shared with the next."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.labs import running

from umbilical.lab.images import Image
from umbilical.lab.kubelet import archives, containerd, node_images
from umbilical.lab.kubelet.needs import find_cni
from umbilical.lab.lab import Lab
from umbilical.lab.runner import RunnerKind


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "etcd"
    program.write_bytes(b"not run here")
    # Without the image of our own, which takes Python: this is about how images get onto nodes.
    image = Image("localhost/etcd:lab", {"etcd": program})
    monkeypatch.setattr(node_images, "lab_images", lambda _: {image.reference: image})
    with running(tmp_path / "lab", runner=RunnerKind.KUBELET) as lab:
        yield lab


def test_an_image_that_is_imported_anew_takes_the_place_of_the_old_one() -> None:
    present = {"umbilical-lab-old.tar", "kube-apiserver-lab-1.tar"}
    assert node_images._all_in(["umbilical-lab-new.tar", "pause-1-x.tar"], present) == {
        "umbilical-lab-new.tar",
        "pause-1-x.tar",
        "kube-apiserver-lab-1.tar",
    }


def start(lab: Lab, node: str) -> list[str]:
    plugins = find_cni()
    assert plugins is not None
    snapshotter = containerd.choose_snapshotter(lab, node)
    lab.write(node, containerd.CONFIG_PATH, containerd.config(snapshotter, plugins).encode())
    node_images.start_with_images(lab, node, snapshotter)
    # The CRI plugin lists each by its digest as well.
    listed = containerd.ctr(lab, node, "images", "ls", "-q").check().text.split()
    return [name for name in listed if not name.startswith("sha256:")]


@pytest.mark.root
@pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr")
def test_the_second_node_imports_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert start(lab, "bootstrap") == ["localhost/etcd:lab", "localhost/pause:1"]
    (store,) = (archives.cache_directory() / "stores").iterdir()
    assert store.name.startswith(containerd.version(lab, "bootstrap"))
    folder = lab.directory.node_root("bootstrap") / node_images.FOLDER_ON_NODE.lstrip("/")
    assert list(folder.iterdir()) == [], "archives go when they are imported"

    def refuse(*_: object) -> None:
        raise AssertionError("imported although a store has it")

    monkeypatch.setattr(containerd, "import_image", refuse)
    assert start(lab, "master-0") == ["localhost/etcd:lab", "localhost/pause:1"]
    lab.stop("master-0", containerd.PROCESS)
    assert start(lab, "master-0") == ["localhost/etcd:lab", "localhost/pause:1"]


@pytest.mark.root
@pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr")
def test_what_a_killed_import_left_is_imported_anew(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(containerd, "import_image", die)
        with pytest.raises(KeyboardInterrupt):
            start(lab, "bootstrap")
    lab.stop("bootstrap", containerd.PROCESS)
    assert start(lab, "bootstrap") == ["localhost/etcd:lab", "localhost/pause:1"]
