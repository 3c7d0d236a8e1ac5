"""Directories are whole or as they were before."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.tunnel_directories import make_directory

from umbilical.cli import pki_files
from umbilical.cli.pki_files import read_bytes, read_certificates_of, refuse_existing, write_directory
from umbilical.host.errors import HostError
from umbilical.host.files import write_file
from umbilical.pki.errors import PkiError

FILES = {"ca.crt": b"certificate", "ca.key": b"key", "server.crt": b"more"}


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_directory_is_private_and_so_are_its_keys(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "pki"
    before = os.umask(0o022)
    try:
        write_directory(folder, FILES, overwrite=False)
    finally:
        os.umask(before)
    assert content_of(folder) == FILES
    assert [mode(path) for path in (folder, folder / "ca.key", folder / "ca.crt")] == [0o700, 0o600, 0o644]
    assert [path.name for path in folder.parent.iterdir()] == ["pki"]


def test_other_files_of_a_directory_stay(tmp_path: Path) -> None:
    (tmp_path / "notes").write_bytes(b"mine")
    write_directory(tmp_path, FILES, overwrite=False)
    assert content_of(tmp_path) == {**FILES, "notes": b"mine"}


def test_one_file_that_exists_stops_everything(tmp_path: Path) -> None:
    (tmp_path / "server.crt").write_bytes(b"old")
    with pytest.raises(HostError, match=r"UMB801 .* already holds server\.crt"):
        write_directory(tmp_path, FILES, overwrite=False)
    assert content_of(tmp_path) == {"server.crt": b"old"}


def test_a_dangling_link_counts_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "ca.key").symlink_to(tmp_path / "nowhere")
    with pytest.raises(HostError, match="UMB801"):
        refuse_existing(tmp_path, FILES, overwrite=False)


def test_a_file_in_the_directorys_place_is_refused_even_with_overwrite(tmp_path: Path) -> None:
    (tmp_path / "pki").write_bytes(b"")
    with pytest.raises(HostError, match="no directory"):
        write_directory(tmp_path / "pki", FILES, overwrite=True)


def test_overwriting_replaces_and_gives_keys_their_mode_back(tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / name).write_bytes(b"old")
        (tmp_path / name).chmod(0o666)
    write_directory(tmp_path, FILES, overwrite=True)
    assert content_of(tmp_path) == FILES
    assert mode(tmp_path / "ca.key") == 0o600


@pytest.mark.parametrize("existing", [{}, {"notes": b"mine"}, {"ca.crt": b"old", "ca.key": b"old key"}])
@pytest.mark.parametrize("failing", list(FILES))
def test_a_failing_rename_puts_everything_back(
    existing: dict[str, bytes], failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in existing.items():
        (tmp_path / name).write_bytes(content)
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if self.name == failing and self.read_bytes() == FILES[failing]:
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(PkiError, match="UMB157") as refused:
        write_directory(tmp_path, FILES, overwrite=True)
    assert refused.value.why == "No space left on device"
    assert content_of(tmp_path) == existing


@pytest.mark.parametrize("writes", range(len(FILES)))
def test_a_failing_write_leaves_no_directory(writes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Path] = []

    def write_half(path: Path, content: bytes, mode: int) -> Path:
        if len(done) == writes:
            raise OSError(28, "No space left on device")
        done.append(path)
        return write_file(path, content, mode)

    monkeypatch.setattr(pki_files, "write_file", write_half)
    with pytest.raises(PkiError, match="UMB157"):
        write_directory(tmp_path / "pki", FILES, overwrite=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("writes", range(len(FILES) + 1))
def test_a_kill_half_way_leaves_no_directory_of_that_name(writes: int, tmp_path: Path) -> None:
    """SIGKILL can leave the hidden scratch directory behind, and nothing that could be taken for a finished one."""
    script = f"""
import os, signal
from pathlib import Path
from umbilical.cli import pki_files
real, done = pki_files.write_file, []
def write_file(path, content, mode):
    if len(done) == {writes}:
        os.kill(os.getpid(), signal.SIGKILL)
    done.append(path)
    return real(path, content, mode)
def rename(self, target):
    os.kill(os.getpid(), signal.SIGKILL)
pki_files.write_file = write_file
Path.rename = rename
pki_files.write_directory(Path({str(tmp_path / "pki")!r}), {FILES!r}, overwrite=False)
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert done.returncode == -9
    left = list(tmp_path.iterdir())
    assert all(path.name.startswith(".pki.") and mode(path) == 0o700 for path in left)


def test_reading_says_what_is_wrong(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "pki")
    assert read_certificates_of(folder / "agent.crt")[0].common_name == "konnectivity-agent"
    assert read_bytes(folder / "agent.crt").startswith(b"-----BEGIN")
    with pytest.raises(PkiError, match=r"UMB152 no certificate in .*agent\.key\n  why: it holds a private key"):
        read_certificates_of(folder / "agent.key")
    for read in (read_bytes, read_certificates_of):
        with pytest.raises(PkiError, match=r"UMB152 .*\n  why: No such file"):
            read(folder / "none")
