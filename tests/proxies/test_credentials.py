"""Who may use a proxy, and what never shows."""

import os
from pathlib import Path

import pytest

from umbilical.proxies.credentials import MAX_FILE_BYTES, Credentials
from umbilical.tunnel.errors import StartupError


def _file(folder: Path, text: str) -> Path:
    path = folder / "users"
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_user_with_the_right_password_is_let_in_and_nobody_else(tmp_path: Path) -> None:
    known = Credentials(_file(tmp_path, "ann:s3cret\n\nbob:with:colons\n"))
    assert known.are_valid(b"ann", b"s3cret")
    assert known.are_valid(b"bob", b"with:colons")
    for username, password in ((b"ann", b"s3cre"), (b"ann", b""), (b"", b""), (b"eve", b""), (b"bob", b"s3cret")):
        assert not known.are_valid(username, password)


def test_a_changed_file_counts_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    path = _file(tmp_path, "ann:old\n")
    known = Credentials(path)
    path.write_text("ann:newer\n")
    assert known.are_valid(b"ann", b"newer")
    assert not known.are_valid(b"ann", b"old")
    assert "read again: 1 users" in caplog.text
    assert "newer" not in caplog.text


def test_a_secret_that_is_replaced_by_its_link_counts_too(tmp_path: Path) -> None:
    for name, password in (("one", "first"), ("two", "again")):
        (tmp_path / name).mkdir()
        _file(tmp_path / name, f"ann:{password}\n")
    link = tmp_path / "..data"
    link.symlink_to("one")
    known = Credentials(link / "users")
    os.symlink("two", tmp_path / "..tmp")
    os.rename(tmp_path / "..tmp", link)
    assert known.are_valid(b"ann", b"again")


@pytest.mark.parametrize("text", ["no colon", "ann:", ":s3cret", f"ann:{'p' * 256}"])
def test_a_bad_line_is_named_by_its_number_and_not_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(StartupError) as fault:
        Credentials(_file(tmp_path, f"bob:fine\n{text}\n"))
    assert fault.value.code == "UMB521"
    assert "line 2" in fault.value.why
    assert text not in str(fault.value)


def test_no_file_is_no_open_door(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="No such file"):
        Credentials(tmp_path / "users")


def test_an_empty_file_lets_nobody_in(tmp_path: Path) -> None:
    known = Credentials(_file(tmp_path, ""))
    assert not known.are_valid(b"", b"")


def test_a_file_of_any_size_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="more than"):
        Credentials(_file(tmp_path, "a:b\n" * (MAX_FILE_BYTES // 4 + 1)))


@pytest.mark.parametrize("text", ["broken", None])
def test_a_file_that_breaks_later_leaves_those_from_before(
    tmp_path: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = _file(tmp_path, "ann:s3cret\n")
    known = Credentials(path)
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    for _ in range(3):
        assert known.are_valid(b"ann", b"s3cret")
    assert caplog.text.count("UMB521") == 1
    assert "s3cret" not in caplog.text
