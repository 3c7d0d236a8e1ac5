"""What the documents promise exists: commands, links, sections; and no debts are written into the source."""

import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from tests.architecture.rooms import PACKAGE, REPOSITORY

DOCUMENTS: Final = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
CODE_BLOCK: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
MAKE_COMMAND: Final = re.compile(r"(?:^|`)make ([a-z][a-z-]*)", re.MULTILINE)
TARGET: Final = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
NAMED_TEST: Final = re.compile(r"\btest_[a-z0-9_]{6,}\b")
DEBT: Final = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def _name(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def _local_links(document: Path) -> list[str]:
    links = LINK.findall(CODE_BLOCK.sub("", document.read_text()))
    return [link for link in links if not link.startswith(("http://", "https://", "mailto:"))]


def _anchor(heading: str) -> str:
    """Spell a heading as its link target: lower case, punctuation gone, blanks to hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _anchors(document: Path) -> set[str]:
    return {_anchor(line.lstrip("#")) for line in document.read_text().splitlines() if line.startswith("#")}


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_links_of_a_document_resolve(document: Path) -> None:
    for link in _local_links(document):
        path, _, fragment = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), f"{_name(document)} links to {link}"
        assert not fragment or fragment in _anchors(target), f"{_name(document)}: {_name(target)} has no #{fragment}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_every_make_command_in_a_document_exists(document: Path) -> None:
    targets = set(TARGET.findall((REPOSITORY / "Makefile").read_text()))
    unknown = set(MAKE_COMMAND.findall(document.read_text())) - targets
    assert not unknown, f"{_name(document)} names make {sorted(unknown)}"


def test_every_command_for_people_is_in_the_readme() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    documented = re.findall(r"^([a-z][a-z-]*):.*## ", makefile, re.MULTILINE)
    named = set(MAKE_COMMAND.findall((REPOSITORY / "README.md").read_text()))
    assert set(documented) - {"help"} <= named


@cache
def _tests() -> frozenset[str]:
    """Every test by name, and every file of tests by its own."""
    files = list((REPOSITORY / "tests").rglob("test_*.py"))
    functions = {name for path in files for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)}
    return frozenset(functions | {path.stem for path in files})


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_every_test_that_a_document_names_exists(document: Path) -> None:
    named = set(NAMED_TEST.findall(document.read_text()))
    assert not named - _tests()


def test_the_changelog_has_an_unreleased_section() -> None:
    assert "\n## [Unreleased]\n" in (REPOSITORY / "CHANGELOG.md").read_text()


def test_every_decision_is_in_the_index() -> None:
    folder = REPOSITORY / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    assert [path.name for path in folder.glob("[0-9]*.md") if f"({path.name})" not in index] == []


def test_no_decision_number_is_used_twice() -> None:
    numbers = [path.name[:4] for path in (REPOSITORY / "docs" / "decisions").glob("[0-9]*.md")]
    assert len(numbers) == len(set(numbers))


def test_the_places_that_the_architecture_names_exist() -> None:
    rooms = "|".join(path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__")
    text = (REPOSITORY / "docs" / "architecture.md").read_text()
    named = re.findall(rf"`((?:{rooms})/[\w/.]*)`", text)
    assert [name for name in named if not (PACKAGE / name).exists()] == []


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=_name)
def test_source_holds_no_debts(path: Path) -> None:
    debts = [line for line in path.read_text().splitlines() if DEBT.search(line)]
    assert not debts, f"{_name(path)}: do it, or write it where work is planned"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=_name)
def test_a_module_opens_with_one_to_six_lines_on_what_lives_in_it(path: Path) -> None:
    text = path.read_text()
    docstring = re.match(r'r?"""(.*?)"""', text, re.DOTALL)
    assert docstring is not None, f"{_name(path)} has no docstring"
    # A state picture (indented) and blank lines are not counted.
    prose = [line for line in docstring.group(1).splitlines() if line.strip() and not line.startswith(" ")]
    assert 1 <= len(prose) <= 6, f"{_name(path)}: {len(prose)} lines"
