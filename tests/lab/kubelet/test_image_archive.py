"""Image archives: read back by Python's own tar, byte for byte the same when made again."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from umbilical.lab.kubelet.image_archive import (
    Entry,
    ImageConfig,
    content_key,
    program_entries,
    tree_entries,
    write_archive,
)

REFERENCE = "localhost/x:lab"
CONFIG = ImageConfig("amd64", user="65532:0", entrypoint=("/usr/bin/x",), environment=("PATH=/usr/bin",))


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any], tarfile.TarFile]:
    """Return manifest, config and layer, as a runtime finds them."""
    with tarfile.open(path) as archive:
        contents = {member.name: (archive.extractfile(member) or io.BytesIO()).read() for member in archive}
    manifest = json.loads(contents["manifest.json"])[0]
    layer_bytes = contents[manifest["Layers"][0]]
    document = json.loads(contents[manifest["Config"]])
    assert document["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer_bytes).hexdigest()}"]
    return manifest, document, tarfile.open(fileobj=io.BytesIO(layer_bytes))


def test_an_archive_holds_manifest_config_and_one_layer(tmp_path: Path) -> None:
    program = tmp_path / "x"
    program.write_bytes(b"binary")
    write_archive(tmp_path / "x.tar", [REFERENCE], program_entries({"x": program, "y": b"other"}), CONFIG)
    manifest, config, layer = read(tmp_path / "x.tar")
    assert manifest["RepoTags"] == [REFERENCE]
    assert config["os"] == "linux"
    assert config["architecture"] == "amd64"
    assert config["config"] == {"User": "65532:0", "Entrypoint": ["/usr/bin/x"], "Env": ["PATH=/usr/bin"]}
    assert [member.name for member in layer] == ["tmp", "usr", "usr/bin", "usr/bin/x", "usr/bin/y"]
    assert [oct(member.mode) for member in layer] == ["0o1777", "0o755", "0o755", "0o755", "0o755"]
    stored = layer.extractfile("usr/bin/x")
    assert stored is not None
    assert stored.read() == b"binary"


def test_the_same_entries_give_the_same_bytes_and_nothing_of_this_machine(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        source = tmp_path / name.removesuffix(".tar")
        source.write_bytes(b"binary")
        source.chmod(0o700)
        write_archive(tmp_path / name, [REFERENCE], program_entries({"x": source}), CONFIG)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    _, _, layer = read(tmp_path / "a.tar")
    assert {(member.uid, member.gid, member.mtime, member.uname) for member in layer} == {(0, 0, 0, "")}


def test_a_tree_is_taken_over_with_links_and_modes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/lib").mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    (root / "usr/lib/module").write_bytes(b"content")
    (root / "usr/lib/module").chmod(0o640)
    entries = list(tree_entries(root))
    assert [(entry.path, entry.link) for entry in entries] == [
        ("lib", "usr/lib"),
        ("usr", None),
        ("usr/lib", None),
        ("usr/lib/module", None),
    ]
    write_archive(tmp_path / "x.tar", [REFERENCE], entries, CONFIG)
    _, _, layer = read(tmp_path / "x.tar")
    assert layer.getmember("lib").linkname == "usr/lib"
    assert layer.getmember("usr/lib/module").mode == 0o640


def test_a_failed_archive_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_archive(tmp_path / "x.tar", [REFERENCE], program_entries({"x": tmp_path / "gone"}), CONFIG)
    assert list(tmp_path.iterdir()) == []


def test_a_key_changes_with_content_name_mode_and_config() -> None:
    entries = [Entry("usr/bin/x", b"one")]
    keys = {
        content_key(entries, CONFIG),
        content_key([Entry("usr/bin/x", b"two")], CONFIG),
        content_key([Entry("usr/bin/y", b"one")], CONFIG),
        content_key([Entry("usr/bin/x", b"one", 0o644)], CONFIG),
        content_key([Entry("usr/bin/x", link="one")], CONFIG),
        content_key(entries, ImageConfig("arm64")),
    }
    assert len(keys) == 6


def test_a_key_is_the_same_for_a_file_and_for_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"one")
    assert content_key([Entry("x", tmp_path / "x")], CONFIG) == content_key([Entry("x", b"one")], CONFIG)
