"""Files of an installer: whole, missing, broken, and never quoted."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.bootstrap import documents
from umbilical.bootstrap.documents import parse_yaml, read_bytes, read_json, read_yaml
from umbilical.bootstrap.errors import BootstrapError


def test_whole_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"a": 1}')
    assert read_json(tmp_path / "a") == {"a": 1}
    assert read_yaml(tmp_path / "a") == {"a": 1}


def test_a_missing_file_is_no_fault(tmp_path: Path) -> None:
    assert read_json(tmp_path / "a") is None
    assert read_yaml(tmp_path / "a" / "b") is None


@pytest.mark.parametrize("content", ["", "[1]", '"secret"', "{secret: [", "\x00secret", "a: &b *b *c\n- d"])
def test_a_broken_file_is_told_in_three_lines_without_its_content(content: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(content)
    for read in (read_json, read_yaml):
        with pytest.raises(BootstrapError) as caught:
            read(tmp_path / "a")
        assert caught.value.code == "UMB171"
        assert "secret" not in str(caught.value)


def test_a_fault_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"a":\n nope}')
    with pytest.raises(BootstrapError, match="line 2"):
        read_json(tmp_path / "a")
    (tmp_path / "b").write_text("a: 1\nb: secret: x\n")
    with pytest.raises(BootstrapError, match="line 2") as caught:
        read_yaml(tmp_path / "b")
    assert "secret" not in str(caught.value)


def test_nesting_without_end_is_a_fault_and_no_crash(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"a":' + "[" * 100_000)
    with pytest.raises(BootstrapError):
        read_json(tmp_path / "a")
    with pytest.raises(BootstrapError):
        parse_yaml(b"[" * 20_000, tmp_path / "a")


def test_a_pipe_is_refused_instead_of_waited_on(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(BootstrapError, match="no regular file"):
        read_bytes(tmp_path / "a")


def test_a_file_past_the_bound_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_BYTES", 3)
    (tmp_path / "a").write_text("{}  ")
    with pytest.raises(BootstrapError, match="4 bytes"):
        read_bytes(tmp_path / "a")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_mapping_or_a_fault(content: bytes) -> None:
    with suppress(BootstrapError):
        assert isinstance(parse_yaml(content, Path("x")), dict)
