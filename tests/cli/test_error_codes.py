"""The codes that an installed package can explain are those of the document."""

from pathlib import Path

from umbilical.cli import error_codes
from umbilical.cli.errors import exit_status


def test_the_table_in_the_package_is_that_of_the_document(repository: Path) -> None:
    written = (repository / "docs" / "errors.md").read_text()
    assert error_codes.table() == written, "python tools/hardway_docs.py copies it"


def test_every_row_is_an_explanation_with_a_remedy_and_an_exit_status() -> None:
    found = {entry.name: entry for entry in error_codes.entries()}
    assert len(found) == error_codes.table().count("\n| UMB")
    pivot = found["UMB745"]
    assert "P1 to P8" in pivot.what
    assert "stage retry 13" in pivot.fix
    assert f"exit status {exit_status('UMB745')}" in pivot.scope
