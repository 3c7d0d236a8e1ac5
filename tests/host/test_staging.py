"""Staging directories and records of machines."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from umbilical.host.files import write_all
from umbilical.host.machine_records import Done


@dataclass(frozen=True)
class Made:
    path: str
    content: bytes
    mode: int = 0o600


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("exists", [False, True])
def test_files_get_their_places_and_modes(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "out"
    if exists:
        folder.mkdir()
    write_all([Made("/a/b", b"1"), Made("c", b"2", 0o644)], folder)
    assert content(folder) == {"a/b": b"1", "c": b"2"}
    assert [(folder / name).stat().st_mode & 0o777 for name in ("a/b", "c")] == [0o600, 0o644]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_is_to_go_goes_with_the_same_move(tmp_path: Path) -> None:
    write_all([Made("old", b"1"), Made("kept", b"1")], tmp_path)
    write_all([Made("kept", b"2")], tmp_path, [tmp_path / "old", tmp_path / "never-there"])
    assert content(tmp_path) == {"kept": b"2"}


def test_all_is_put_back_when_one_cannot_be_moved(tmp_path: Path) -> None:
    write_all([Made("a", b"old"), Made("gone", b"old")], tmp_path)
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "in-the-way").touch()
    with pytest.raises(OSError):
        write_all([Made("a", b"new"), Made("new", b"new"), Made("z", b"new")], tmp_path, [tmp_path / "gone"])
    assert content(tmp_path) == {"a": b"old", "gone": b"old", "z/in-the-way": b""}


def test_what_cannot_be_removed_puts_all_back(tmp_path: Path) -> None:
    write_all([Made("a", b"old")], tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_all([Made("a", b"new")], tmp_path, [tmp_path / "folder"])
    assert content(tmp_path) == {"a": b"old"}
    assert (tmp_path / "folder").is_dir()


def test_a_programs_failure_is_its_last_word_and_output_stays_out_of_logs() -> None:
    assert Done(1, b"so far so good\n", b"first\nlast\n").complaint == "last"
    assert Done(1, b"half\nway\n", b"").complaint == "way"
    assert Done(3, b"", b"\n").complaint == "it exited with 3 and printed nothing"
    done = Done(0, b"\xff secret", b"")
    assert done.text == "\ufffd secret"
    assert "secret" not in repr(done)
