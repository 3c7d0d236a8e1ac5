"""Failures in three lines, exit statuses, and one table of codes for the whole tree."""

import re
from pathlib import Path

import pytest

from umbilical.cli import errors
from umbilical.hardway.errors import HardwayError, StageTimeout, Unsafe
from umbilical.tunnel.errors import StartupError

CODE = re.compile(r"\bUMB\d{3}\b")
ROW = re.compile(r"^\| (UMB\d{3}) \| (.+?) \| (.+?) \|$", re.M)


def documented(repository: Path) -> list[str]:
    return [row[0] for row in ROW.findall((repository / "docs" / "errors.md").read_text())]


def used(repository: Path) -> dict[str, Path]:
    files = [path for folder in ("src", "tools") for path in (repository / folder).rglob("*.py")]
    files += [*(repository / "src").rglob("*.sh"), repository / "Makefile"]
    return {code: path for path in files for code in CODE.findall(path.read_text())}


def test_a_failure_is_what_why_and_next() -> None:
    fault = StartupError("UMB002", "cannot read a", "it is gone", "ls a")
    assert errors.three_lines(fault) == "UMB002 cannot read a\n  why: it is gone\n  next: ls a"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("UMB001", 2),
        ("UMB002", 3),
        ("UMB023", 4),
        ("UMB099", 10),
        ("UMB201", 3),
        ("UMB202", 4),
        ("UMB601", 3),
        ("UMB603", 4),
        ("UMB175", 4),
        ("UMB820", 4),
        ("UMB850", 9),
        ("UMB852", 3),
    ],
)
def test_the_exit_status_tells_words_files_and_the_world_apart(code: str, status: int) -> None:
    assert errors.exit_status(code) == status


def test_a_wait_in_vain_and_what_is_unsafe_tell_so_whatever_their_code() -> None:
    words = ("what", "why", "next")
    assert errors.fault_status(StageTimeout("UMB731", *words)) == 9
    assert errors.fault_status(Unsafe("UMB745", *words)) == 7
    assert errors.fault_status(HardwayError("UMB723", *words)) == 1
    assert errors.fault_status(HardwayError("UMB700", *words)) == 3


def test_every_code_in_the_tree_is_in_the_table(repository: Path) -> None:
    table = documented(repository)
    missing = {code: path.name for code, path in used(repository).items() if code not in table}
    assert not missing, f"write them into docs/errors.md: {missing}"


def test_every_code_in_the_table_is_in_the_tree(repository: Path) -> None:
    assert not set(documented(repository)) - set(used(repository))


def test_the_table_is_in_order_and_names_each_code_once(repository: Path) -> None:
    table = documented(repository)
    assert table == sorted(set(table))
