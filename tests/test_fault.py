"""One form for every failure, one table of codes, and exit statuses that scripts can read."""

import re
from pathlib import Path

from umbilical import codes
from umbilical.fault import Fault, HardwayError, StageTimeout, StartupError, Unsafe

CODE = re.compile(r"\bUMB\d{3}\b")
WORDS = ("what", "reason", "command")


def used(repository: Path) -> dict[str, Path]:
    files = [path for folder in ("src", "tools") for path in (repository / folder).rglob("*.py")]
    files += [*(repository / "src").rglob("*.sh"), repository / "Makefile", repository / ".ci" / "run"]
    return {code: path for path in files if path.is_file() for code in CODE.findall(path.read_text())}


def test_the_message_is_three_lines_with_the_code_first() -> None:
    assert str(Fault("UMB001", *WORDS)) == "UMB001 what\n  why: reason\n  next: command"


def test_what_keeps_a_daemon_from_starting_is_one_line_in_logs_and_three_for_users() -> None:
    fault = StartupError("UMB001", *WORDS)
    assert str(fault) == "what: reason"
    assert fault.three_lines == "UMB001 what\n  why: reason\n  next: command"


def test_the_brief_form_is_one_line_without_the_remedy() -> None:
    assert Fault("UMB001", *WORDS).brief == "UMB001 what: reason"


def test_the_exit_status_distinguishes_usage_files_and_external_failures() -> None:
    expected = {
        "UMB001": 2, "UMB002": 3, "UMB023": 4, "UMB099": 10, "UMB201": 3, "UMB207": 4, "UMB601": 3, "UMB603": 4,
        "UMB175": 4, "UMB820": 4, "UMB850": 9, "UMB852": 3, "UMB723": 1, "UMB700": 3, "UMB745": 7,
    }  # fmt: skip
    assert {code: Fault(code, *WORDS).exit_status for code in expected} == expected


def test_a_wait_that_took_too_long_and_what_is_unsafe_end_alike_whatever_their_code() -> None:
    assert StageTimeout("UMB700", *WORDS).exit_status == codes.TIMED_OUT
    assert Unsafe("UMB700", *WORDS).exit_status == codes.UNSAFE
    assert HardwayError("UMB700", *WORDS).exit_status == codes.CONFIGURATION


def test_the_document_is_the_table_of_the_package(repository: Path) -> None:
    assert codes.table() == (repository / "docs" / "errors.md").read_text(), "run `make docs`"


def test_every_code_in_the_tree_is_in_the_table_and_every_row_is_used(repository: Path) -> None:
    documented, raised = set(codes.codes()), used(repository)
    assert {code: path for code, path in raised.items() if code not in documented} == {}
    assert documented - raised.keys() == set()


def test_the_table_has_each_code_once_in_order_under_a_heading(repository: Path) -> None:
    written = re.findall(r"^\| (UMB\d{3}) ", codes.table(), re.MULTILINE)
    assert written == sorted(set(written))
    assert [row.code for row in codes.codes().values() if not row.heading] == []
    assert list(codes.codes()) == written
