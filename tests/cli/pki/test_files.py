"""`umbilical pki rotate`, its backends, and files that change all at once or not at all."""

import os
import stat
import subprocess
import sys
import tempfile
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from tests.support.commands import Run
from tests.support.fixture_types import Captured, Patch
from tests.support.tunnel_directories import ADDRESS, make_directory, make_files, new_authority, now, openssl_verifies

from umbilical.cli.pki.files import read_bytes, read_certificates_of, refuse_existing, write_directory
from umbilical.cli.pki.options import chosen_backend, resolve, run_openssl
from umbilical.fault import Fault, HostError, PkiError
from umbilical.host import files
from umbilical.host.files import write_file
from umbilical.pki.openssl import Openssl

LEAVES = {f"{name}.{kind}" for name in ("server", "agent", "client") for kind in ("crt", "key")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "pki", addresses=(ADDRESS, "api.example.com"))


@pytest.fixture
def rotate(umbilical: Run) -> Run:
    return partial(umbilical, "pki", "rotate", "--dir")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def changed(folder: Path, before: dict[str, bytes]) -> set[str]:
    return {name for name, octets in content(folder).items() if octets != before.get(name)}


def test_new_leaves_come_from_the_same_signer_with_the_same_names(folder: Path, rotate: Run, umbilical: Run) -> None:
    before = content(folder)
    assert "reload" in rotate(folder).err
    assert changed(folder, before) == LEAVES
    server = read_certificates_of(folder / "server.crt")[0]
    assert (server.names, server.key.title) == (("api.example.com", ADDRESS), "ECDSA P-256")
    umbilical("pki", "verify", folder, "--address", ADDRESS)


def test_only_what_is_asked_for_is_renewed(folder: Path, rotate: Run) -> None:
    before = content(folder)
    rotate(folder, "--only", "agent")
    assert changed(folder, before) == {"agent.crt", "agent.key"}


@pytest.mark.real("openssl")
def test_with_a_new_signer_old_leaves_stay_and_still_verify(folder: Path, rotate: Run) -> None:
    before = content(folder)
    told = rotate(folder, "--signer")
    assert changed(folder, before) == {"ca.crt", "ca.key"}
    assert len(read_certificates_of(folder / "ca.crt")) == 2
    assert openssl_verifies(folder / "ca.crt", folder / "server.crt", "-verify_ip", ADDRESS)
    assert "in this order" in told.err
    rotate(folder)
    old = folder.parent / "old.crt"
    old.write_bytes(before["agent.crt"])
    assert openssl_verifies(folder / "ca.crt", old)
    assert openssl_verifies(folder / "ca.crt", folder / "agent.crt")
    issuer = read_certificates_of(folder / "agent.crt")[0].authority_identifier
    assert issuer == read_certificates_of(folder / "ca.crt")[0].key_identifier


def test_signers_that_have_expired_leave_the_bundle(tmp_path: Path, rotate: Run, umbilical: Run) -> None:
    folder = tmp_path / "pki"
    then = now() - timedelta(hours=30)
    write_directory(folder, make_files(new_authority(then), then), overwrite=False)
    expired = read_certificates_of(folder / "ca.crt")[0]
    rotate(folder, "--signer")
    bundle = read_certificates_of(folder / "ca.crt")
    assert len(bundle) == 1
    assert bundle[0] != expired
    rotate(folder)
    umbilical("pki", "verify", folder, "--address", ADDRESS)


def test_a_directory_without_its_signers_key_needs_it_given(folder: Path, tmp_path: Path, rotate: Run) -> None:
    (folder / "ca.key").rename(tmp_path / "safe.key")
    before = content(folder)
    rotate(folder, status=2)
    assert changed(folder, before) == set()
    rotate(folder, "--ca-key", tmp_path / "safe.key")
    assert changed(folder, before) == LEAVES


def test_a_new_signer_is_made_alone(folder: Path, rotate: Run) -> None:
    before = content(folder)
    for arguments in (("--signer", "--only", "agent"), ("--signer", "--ca-key", "x")):
        rotate(folder, *arguments, status=2)
    assert changed(folder, before) == set()


def test_where_nothing_is_nothing_can_be_renewed(tmp_path: Path, rotate: Run) -> None:
    assert "pki init" in rotate(tmp_path, status=2).err
    rotate(tmp_path, "--signer", status=3)
    assert list(tmp_path.iterdir()) == []


def test_auto_takes_openssl_on_a_fips_host_only(tmp_path: Path, capfd: Captured) -> None:
    (off := tmp_path / "off").write_text("0\n")
    (on := tmp_path / "on").write_text("1\n")
    asked = [("auto", off), ("auto", on), ("auto", tmp_path / "none"), ("openssl", off), ("cryptography", off)]
    chosen = [resolve(choice, fips_flag=flag) for choice, flag in asked]
    assert chosen == ["cryptography", "openssl", "cryptography", "openssl", "cryptography"]
    assert capfd.readouterr().err == ""
    assert resolve("cryptography", fips_flag=on) == "cryptography"
    assert "FIPS mode" in capfd.readouterr().err


@pytest.mark.parametrize("fails", [False, True], ids=["well", "after a failure"])
def test_the_scratch_directory_is_private_and_goes_away(fails: bool, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    try:
        with chosen_backend("openssl") as backend:
            assert isinstance(backend, Openssl)
            (scratch,) = tmp_path.iterdir()
            assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
            if fails:
                raise RuntimeError
    except RuntimeError:
        assert fails
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real("openssl")
def test_what_openssl_complains_about_is_told_without_its_input() -> None:
    with pytest.raises(PkiError) as refused:
        run_openssl(["openssl", "pkey", "-in", "/dev/stdin", "-passin", "pass:"], b"-----BEGIN SECRET-----")
    assert (refused.value.code, refused.value.what) == ("UMB154", "openssl pkey failed")
    assert "SECRET" not in str(refused.value)


def test_a_program_that_is_missing_is_told_and_long_complaints_are_cut() -> None:
    with pytest.raises(HostError, match="UMB803"):
        run_openssl(["no-such-openssl", "version"], b"")
    script = "import sys; print('Using configuration from x\\n' + '\\n'.join('abcdef'), file=sys.stderr); sys.exit(1)"
    with pytest.raises(Fault) as refused:
        run_openssl([sys.executable, "-c", script], b"")
    assert refused.value.why == "a | b | c"


FILES = {"ca.crt": b"certificate", "ca.key": b"key", "server.crt": b"more"}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_directory_is_private_and_so_are_its_keys(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "pki"
    before = os.umask(0o022)
    try:
        write_directory(folder, FILES, overwrite=False)
    finally:
        os.umask(before)
    assert content(folder) == FILES
    assert [mode(path) for path in (folder, folder / "ca.key", folder / "ca.crt")] == [0o700, 0o600, 0o644]
    assert [path.name for path in folder.parent.iterdir()] == ["pki"]


def test_other_files_of_a_directory_stay(tmp_path: Path) -> None:
    (tmp_path / "notes").write_bytes(b"mine")
    write_directory(tmp_path, FILES, overwrite=False)
    assert content(tmp_path) == {**FILES, "notes": b"mine"}


def test_one_file_that_exists_stops_everything(tmp_path: Path) -> None:
    (tmp_path / "server.crt").write_bytes(b"old")
    with pytest.raises(HostError, match=r"UMB801 .* already holds server\.crt"):
        write_directory(tmp_path, FILES, overwrite=False)
    assert content(tmp_path) == {"server.crt": b"old"}


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pki").write_bytes(b"")
    with pytest.raises(HostError, match="not a directory"):
        write_directory(tmp_path / "pki", FILES, overwrite=True)
    (tmp_path / "ca.key").symlink_to(tmp_path / "nowhere")
    with pytest.raises(HostError, match="UMB801"):
        refuse_existing(tmp_path, FILES, overwrite=False)


def test_overwriting_replaces_and_gives_keys_their_mode_back(tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / name).write_bytes(b"old")
        (tmp_path / name).chmod(0o666)
    write_directory(tmp_path, FILES, overwrite=True)
    assert content(tmp_path) == FILES
    assert mode(tmp_path / "ca.key") == 0o600


@pytest.mark.parametrize(
    ("existing", "failing"),
    [({}, "ca.crt"), ({"notes": b"mine"}, "ca.key"), ({"ca.crt": b"old", "ca.key": b"old key"}, "server.crt")],
)
def test_a_failing_rename_puts_everything_back(
    existing: dict[str, bytes], failing: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    for name, octets in existing.items():
        (tmp_path / name).write_bytes(octets)
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if self.name == failing and self.read_bytes() == FILES[failing]:
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(PkiError, match="UMB157") as refused:
        write_directory(tmp_path, FILES, overwrite=True)
    assert refused.value.why == "No space left on device"
    assert content(tmp_path) == existing


@pytest.mark.parametrize("writes", range(len(FILES)))
def test_a_failing_write_leaves_no_directory(writes: int, tmp_path: Path, monkeypatch: Patch) -> None:
    done: list[Path] = []

    def write_half(path: Path, content: bytes, mode: int) -> Path:
        if len(done) == writes:
            raise OSError(28, "No space left on device")
        done.append(path)
        return write_file(path, content, mode)

    monkeypatch.setattr(files, "write_file", write_half)
    with pytest.raises(PkiError, match="UMB157"):
        write_directory(tmp_path / "pki", FILES, overwrite=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("writes", [0, 1, len(FILES)])
def test_a_kill_half_way_leaves_no_directory_of_that_name(writes: int, tmp_path: Path) -> None:
    """SIGKILL can leave the hidden scratch directory behind, and nothing that could be taken for a finished one."""
    script = f"""
import os, signal
from pathlib import Path
from umbilical.cli.pki import files
from umbilical.host import files as host_files
real, done = host_files.write_file, []
def write_file(path, content, mode):
    if len(done) == {writes}:
        os.kill(os.getpid(), signal.SIGKILL)
    done.append(path)
    return real(path, content, mode)
def rename(self, target):
    os.kill(os.getpid(), signal.SIGKILL)
host_files.write_file = write_file
Path.rename = rename
files.write_directory(Path({str(tmp_path / "pki")!r}), {FILES!r}, overwrite=False)
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert done.returncode == -9
    left = list(tmp_path.iterdir())
    assert all(path.name.startswith(".pki.") and mode(path) == 0o700 for path in left)


def test_reading_says_what_is_wrong(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "pki")
    assert read_certificates_of(folder / "agent.crt")[0].common_name == "konnectivity-agent"
    assert read_bytes(folder / "agent.crt").startswith(b"-----BEGIN")
    with pytest.raises(PkiError, match=r"UMB152 found no certificate in .*agent\.key\n  why: it holds a private key"):
        read_certificates_of(folder / "agent.key")
    for read in (read_bytes, read_certificates_of):
        with pytest.raises(PkiError, match=r"UMB152 .*\n  why: No such file"):
            read(folder / "none")
