"""Which back end is taken, and what is left of `openssl` afterwards."""

import stat
import sys
import tempfile
from pathlib import Path

import pytest

from umbilical.cli import pki_backends
from umbilical.cli.pki_backends import chosen_backend, resolve, run_openssl
from umbilical.fault import Fault
from umbilical.host.errors import HostError
from umbilical.pki.authority import Authority
from umbilical.pki.errors import PkiError
from umbilical.pki.openssl import Openssl


@pytest.mark.parametrize(
    ("choice", "flag", "expected"),
    [
        ("auto", "0\n", "cryptography"),
        ("auto", "1\n", "openssl"),
        ("auto", None, "cryptography"),
        ("openssl", "0\n", "openssl"),
        ("cryptography", "0\n", "cryptography"),
    ],
)
def test_auto_takes_openssl_on_a_fips_host_only(
    choice: str, flag: str | None, expected: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fips_enabled"
    if flag is not None:
        path.write_text(flag)
    assert resolve(choice, fips_flag=path) == expected
    assert capfd.readouterr().err == ""


def test_the_library_on_a_fips_host_is_used_with_a_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fips_enabled"
    path.write_text("1\n")
    assert resolve("cryptography", fips_flag=path) == "cryptography"
    assert "FIPS mode" in capfd.readouterr().err


def test_auto_takes_openssl_where_the_library_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pki_backends, "find_spec", lambda name: None)
    assert resolve("auto", fips_flag=tmp_path / "none") == "openssl"
    with pytest.raises(PkiError, match="UMB155"), chosen_backend("cryptography"):
        pass


def test_the_library_is_its_own_back_end() -> None:
    with chosen_backend("cryptography") as backend:
        assert backend is Authority


@pytest.mark.parametrize("fails", [False, True], ids=["well", "after a failure"])
def test_the_scratch_directory_is_private_and_goes_away(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_program_that_is_missing_is_told() -> None:
    with pytest.raises(HostError, match="UMB803"):
        run_openssl(["no-such-openssl", "version"], b"")


def test_long_complaints_are_cut_to_three_lines() -> None:
    script = "import sys; print('Using configuration from x\\n' + '\\n'.join('abcdef'), file=sys.stderr); sys.exit(1)"
    with pytest.raises(Fault) as refused:
        run_openssl([sys.executable, "-c", script], b"")
    assert refused.value.why == "a | b | c"
