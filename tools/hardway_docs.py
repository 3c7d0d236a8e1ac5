"""Writes docs/hardway/ (a page for each stage), docs/errors.md and docs/flags.md from texts in the code.

`python tools/hardway_docs.py` writes them; a test checks that they are up to date.
"""

import sys
from pathlib import Path
from typing import Final

import flag_docs
from hardway_pages import Book
from umbilical import codes
from umbilical.cli.stage.cluster import example_sites
from umbilical.hardway.stages import catalogue

REPOSITORY: Final = Path(__file__).resolve().parent.parent
PAGES: Final = Path("docs", "hardway")
CODES: Final = Path("docs", "errors.md")


def made(repository: Path = REPOSITORY) -> dict[Path, str]:
    """Render all pages, by path in the repository."""
    book = Book(catalogue.stages(), example_sites())
    pages = {PAGES / name: text for name, text in book.files().items()}
    return {**pages, CODES: codes.table(), flag_docs.PAGE: flag_docs.page()}


def main() -> int:
    for path, text in made().items():
        place = REPOSITORY / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists() or place.read_text() != text:
            place.write_text(text)
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
