"""The committed pages are those that the texts of the code make."""

from pathlib import Path

import hardway_docs

MADE = hardway_docs.made()


def test_generated_pages_in_the_repository_are_up_to_date_and_complete(repository: Path) -> None:
    for path in MADE:
        assert (repository / path).read_text() == MADE[path], "run `python tools/hardway_docs.py`"
    pages = {path.relative_to(repository) for path in (repository / hardway_docs.PAGES).iterdir()}
    assert pages == {path for path in MADE if path.parent == hardway_docs.PAGES}
    assert len(pages) == 18


def test_pages_name_nothing_of_the_machine_on_which_they_are_made(repository: Path) -> None:
    private = (str(Path.home()), str(repository))
    assert not [path for path, text in MADE.items() if any(f"{name}/" in text for name in private)]
