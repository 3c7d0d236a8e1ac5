"""Files are whole, have exactly their mode, and are not replaced by accident."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from umbilical.fault import HostError
from umbilical.host.files import make_directory, write_file, write_public


@pytest.fixture(params=[0o000, 0o077], ids=["umask-000", "umask-077"], autouse=True)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_secret_unless_it_is_public_whatever_the_umask(tmp_path: Path) -> None:
    path = write_file(tmp_path / "key", b"secret")
    assert path.read_bytes() == b"secret"
    assert _mode(path) == 0o600
    assert _mode(write_public(tmp_path / "crt", b"c")) == 0o644


def test_an_existing_file_is_kept_and_nothing_else_is_left_behind(tmp_path: Path) -> None:
    path = write_file(tmp_path / "key", b"old")
    with pytest.raises(HostError, match="UMB801"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_overwriting_replaces_content_and_mode_and_a_reader_keeps_the_old_file(tmp_path: Path) -> None:
    path = write_public(tmp_path / "f", b"old")
    write_file(path, b"new", overwrite=True)
    assert (path.read_bytes(), _mode(path)) == (b"new", 0o600)
    assert list(tmp_path.iterdir()) == [path]
    with path.open("rb") as reader:
        write_file(path, b"newer", overwrite=True)
        assert reader.read() == b"new"


def test_a_failed_write_leaves_no_scratch_file(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "target")
    with pytest.raises(OSError):
        write_file(folder, b"x", overwrite=True)
    assert list(tmp_path.iterdir()) == [folder]


# Writes slowly: says when the content is in the scratch file, and waits there.
_SLOW_WRITER = """
import os, pathlib, sys, time
from umbilical.host.files import write_file
os.fsync = lambda descriptor: (print("written", flush=True), time.sleep(60))
write_file(pathlib.Path(sys.argv[1]), b"new", 0o640, overwrite=True)
"""


def test_what_a_killed_writer_left_is_secret_and_removed_by_the_next_one_but_not_what_is_in_use(tmp_path: Path) -> None:
    path = write_file(tmp_path / "bootstrap.ign", b"old", 0o640)
    foreign = write_public(tmp_path / ".bootstrap.ign.original", b"a user's own copy")
    with subprocess.Popen([sys.executable, "-c", _SLOW_WRITER, path], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        try:
            assert writer.stdout.readline() == b"written\n"
            (scratch,) = set(tmp_path.iterdir()) - {path, foreign}
            assert (scratch.read_bytes(), _mode(scratch)) == (b"new", 0o600)
            write_file(path, b"other", 0o640, overwrite=True)
            assert scratch.exists()
        finally:
            writer.kill()
    assert path.read_bytes() == b"other"
    write_file(path, b"last", 0o640, overwrite=True)
    assert set(tmp_path.iterdir()) == {path, foreign}
    assert _mode(path) == 0o640


def test_directories_are_made_with_exact_mode_and_existing_ones_keep_theirs(tmp_path: Path) -> None:
    path = make_directory(tmp_path / "a" / "b", 0o750)
    assert _mode(path) == _mode(path.parent) == 0o750
    tmp_path.chmod(0o755)
    make_directory(tmp_path)
    assert _mode(tmp_path) == 0o755
