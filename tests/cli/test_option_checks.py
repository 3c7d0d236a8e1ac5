"""Checks that both drop-in programs share."""

import uuid
from pathlib import Path

import pytest

from umbilical.cli.option_checks import OptionRefused, check_file, check_pair, optional_path, random_id, stat_fault


def test_a_missing_file_is_told_as_go_tells_it(tmp_path: Path) -> None:
    missing = f"{tmp_path}/missing"
    assert stat_fault(missing) == f"stat {missing}: no such file or directory"
    with pytest.raises(OptionRefused) as refusal:
        check_file("server key", missing)
    assert str(refusal.value) == f"error checking server key {missing}, got stat {missing}: no such file or directory"


def test_no_file_named_and_a_file_that_is_there_pass(tmp_path: Path) -> None:
    check_file("server key", "")
    check_file("server key", str(tmp_path))


def test_a_file_below_a_file_passes_here_and_fails_when_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert stat_fault(f"{tmp_path}/file/below") is None


def test_a_certificate_and_a_key_come_together(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    check_pair("agent", str(file), str(file))
    with pytest.raises(OptionRefused, match=r"^cannot have agent cert empty when agent key is set to "):
        check_pair("agent", "", str(file))
    with pytest.raises(OptionRefused, match=r"^cannot have agent key empty when agent cert is set to "):
        check_pair("agent", str(file), "")


def test_an_empty_path_is_none() -> None:
    assert optional_path("") is None
    assert optional_path("/a") == Path("/a")


def test_a_random_id_is_a_random_uuid() -> None:
    first, second = uuid.UUID(random_id()), uuid.UUID(random_id())
    assert (first.version, first.variant) == (4, uuid.RFC_4122)
    assert first != second
