"""Files for a pod: a new version is seen whole, and none of the old one stays."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.lab.pods.payload import WrittenFile, write_payload

FILES = {"tls.crt": WrittenFile(b"certificate", 0o444), "deep/er/key": WrittenFile(b"key", 0o400)}


def seen(folder: Path) -> dict[str, bytes]:
    names = [path.relative_to(folder) for path in folder.rglob("*") if ".." not in str(path.relative_to(folder))]
    files = {str(name): (folder / name).read_bytes() for name in names if (folder / name).is_file()}
    for top in os.listdir(folder):
        if not top.startswith("..") and (folder / top).is_dir():
            inner = [path for path in (folder / top).resolve().rglob("*") if path.is_file()]
            files |= {f"{top}/{path.relative_to((folder / top).resolve())}": path.read_bytes() for path in inner}
    return files


def test_files_lie_under_their_names_with_their_modes(tmp_path: Path) -> None:
    assert write_payload(tmp_path, FILES)
    assert seen(tmp_path) == {"tls.crt": b"certificate", "deep/er/key": b"key"}
    assert stat.S_IMODE((tmp_path / "tls.crt").stat().st_mode) == 0o444
    assert stat.S_IMODE((tmp_path / "deep/er/key").stat().st_mode) == 0o400


def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    write_payload(tmp_path, FILES)
    before = os.readlink(tmp_path / "..data")
    assert not write_payload(tmp_path, FILES)
    assert os.readlink(tmp_path / "..data") == before


def test_a_new_version_replaces_the_old_one_wholly(tmp_path: Path) -> None:
    write_payload(tmp_path, FILES)
    assert write_payload(tmp_path, {"tls.crt": WrittenFile(b"new", 0o444)})
    assert seen(tmp_path) == {"tls.crt": b"new"}
    assert len([name for name in os.listdir(tmp_path) if name.startswith("..") and name != "..data"]) == 1


@pytest.mark.root
def test_a_group_can_read_what_is_for_it(tmp_path: Path) -> None:
    write_payload(tmp_path, FILES, group=4711)
    key = (tmp_path / "deep/er/key").stat()
    assert (key.st_gid, stat.S_IMODE(key.st_mode)) == (4711, 0o440)


NAMES = st.from_regex(r"[a-c]{1,2}(/[a-c]{1,2})?", fullmatch=True)


@given(st.lists(st.dictionaries(NAMES, st.binary(max_size=4), max_size=4), min_size=1, max_size=4))
def test_the_folder_always_shows_the_last_version(
    tmp_path_factory: pytest.TempPathFactory, versions: list[dict[str, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("payload")
    for version in versions:
        files = {
            name: content for name, content in version.items() if not any(o.startswith(f"{name}/") for o in version)
        }
        write_payload(folder, {name: WrittenFile(content, 0o644) for name, content in files.items()})
        assert seen(folder) == files
