"""hostPath types: what is made, what is checked, what is waited for."""

import socket
from pathlib import Path

import pytest

from umbilical.lab.pods.errors import Waiting
from umbilical.lab.pods.host_paths import provide
from umbilical.lab.pods.spec import HostPath, PathType


@pytest.mark.parametrize("kind", [PathType.DIRECTORY_OR_CREATE, PathType.ANY])
def test_a_missing_directory_is_made_where_the_type_says_so(tmp_path: Path, kind: PathType) -> None:
    assert provide("v", HostPath(str(tmp_path / "a/b"), kind)).is_dir()


def test_a_missing_file_is_made_but_not_its_directory(tmp_path: Path) -> None:
    assert provide("v", HostPath(str(tmp_path / "a"), PathType.FILE_OR_CREATE)).is_file()
    with pytest.raises(Waiting, match="UMB833"):
        provide("v", HostPath(str(tmp_path / "b/c"), PathType.FILE_OR_CREATE))


@pytest.mark.parametrize(
    "kind", [PathType.DIRECTORY, PathType.FILE, PathType.SOCKET, PathType.CHARACTER_DEVICE, PathType.BLOCK_DEVICE]
)
def test_what_must_be_there_already_is_waited_for(tmp_path: Path, kind: PathType) -> None:
    with pytest.raises(Waiting) as waiting:
        provide("v", HostPath(str(tmp_path / "a"), kind))
    assert waiting.value.reason == "ContainerCreating"
    assert not (tmp_path / "a").exists()


def test_a_file_is_no_directory_and_the_other_way_round(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for kind in (PathType.DIRECTORY, PathType.DIRECTORY_OR_CREATE, PathType.SOCKET):
        with pytest.raises(Waiting, match="it is no"):
            provide("v", HostPath(str(tmp_path / "file"), kind))
    with pytest.raises(Waiting, match="it is no File"):
        provide("v", HostPath(str(tmp_path), PathType.FILE_OR_CREATE))


def test_what_is_there_is_taken_as_it_is(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.close()
    assert provide("v", HostPath(str(tmp_path / "s"), PathType.SOCKET)) == tmp_path / "s"
    assert provide("v", HostPath("/dev/null", PathType.CHARACTER_DEVICE)) == Path("/dev/null")
