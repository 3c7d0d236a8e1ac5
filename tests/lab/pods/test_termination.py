"""Last words."""

from pathlib import Path

import pytest

from umbilical.lab.pods.termination import MAX_FROM_LOG, MAX_MESSAGE, termination_message


@pytest.mark.parametrize(
    ("words", "code", "falls_back", "expected"),
    [
        (b"why", 1, True, "why"),
        (b"why", 0, False, "why"),
        (b"", 1, True, "line\nlast"),
        (b"", 1, False, ""),
        (b"", 0, True, ""),
        (None, 1, True, "line\nlast"),
    ],
)
def test_the_log_speaks_for_a_failure_that_said_nothing(
    tmp_path: Path, words: bytes | None, code: int, falls_back: bool, expected: str
) -> None:
    if words is not None:
        (tmp_path / "words").write_bytes(words)
    (tmp_path / "log").write_text("line\nlast\n")
    found = termination_message(tmp_path / "words", tmp_path / "log", code, falls_back_to_log=falls_back)
    assert found == expected


def test_a_message_is_as_long_as_the_api_takes_it(tmp_path: Path) -> None:
    (tmp_path / "words").write_bytes(b"\xff" * 10_000)
    (tmp_path / "log").write_bytes(b"x" * 10_000)
    told = termination_message(tmp_path / "words", tmp_path / "log", 1, falls_back_to_log=True)
    assert len(told) == MAX_MESSAGE
    (tmp_path / "words").write_bytes(b"")
    assert len(termination_message(tmp_path / "words", tmp_path / "log", 1, falls_back_to_log=True)) == MAX_FROM_LOG


def test_no_file_at_all_is_no_message(tmp_path: Path) -> None:
    assert termination_message(tmp_path / "a", tmp_path / "b", 1, falls_back_to_log=True) == ""
