"""Trees on disk: whole, with their modes, or not at all."""

from pathlib import Path

import pytest

from umbilical.assets.tree import AssetTree
from umbilical.cli.tree_files import write_tree
from umbilical.host.errors import HostError


def tree(**files: bytes) -> AssetTree:
    made = AssetTree()
    for name, content in files.items():
        made.add(f"/etc/{name}/file", content, 0o555 if name == "script" else 0o600)
    return made


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("exists", [False, True])
def test_files_lie_below_the_directory_with_their_modes(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "deep" / "out"
    if exists:
        folder.mkdir(parents=True)
    write_tree(tree(key=b"secret", script=b"#!"), folder, overwrite=False)
    assert content(folder) == {"etc/key/file": b"secret", "etc/script/file": b"#!"}
    assert (folder / "etc/key/file").stat().st_mode & 0o777 == 0o600
    assert (folder / "etc/script/file").stat().st_mode & 0o777 == 0o555
    assert [path.name for path in folder.parent.iterdir()] == ["out"]
    assert [path.name for path in folder.iterdir()] == ["etc"]


def test_one_file_that_exists_keeps_all_others_away(tmp_path: Path) -> None:
    write_tree(tree(b=b"old"), tmp_path, overwrite=False)
    with pytest.raises(HostError) as fault:
        write_tree(tree(a=b"new", b=b"new"), tmp_path, overwrite=False)
    assert fault.value.code == "UMB801"
    assert "/etc/b/file" in fault.value.why
    assert content(tmp_path) == {"etc/b/file": b"old"}


def test_files_are_replaced_where_that_is_asked_for(tmp_path: Path) -> None:
    write_tree(tree(script=b"old"), tmp_path, overwrite=False)
    write_tree(tree(a=b"new", script=b"new"), tmp_path, overwrite=True)
    assert content(tmp_path) == {"etc/a/file": b"new", "etc/script/file": b"new"}


def test_a_failure_on_the_way_puts_everything_back(tmp_path: Path) -> None:
    write_tree(tree(a=b"old", z=b"old"), tmp_path, overwrite=False)
    (tmp_path / "etc" / "m").write_bytes(b"a file where a directory is needed")
    before = content(tmp_path)
    with pytest.raises(HostError) as fault:
        write_tree(tree(a=b"new", b=b"new", m=b"new", z=b"new"), tmp_path, overwrite=True)
    assert fault.value.code == "UMB118"
    assert content(tmp_path) == before


def test_a_file_in_the_directorys_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(HostError) as fault:
        write_tree(tree(a=b"new"), tmp_path / "out", overwrite=True)
    assert fault.value.code == "UMB801"
