"""Commands, links, tests and modules that the documents name exist; the source has no TODOs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.architecture.rooms import PACKAGE, REPOSITORY, Module, modules

DOCUMENTS: Final = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
CODE_BLOCK: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
MAKE_COMMAND: Final = re.compile(r"(?:^|`)make ([a-z][a-z-]*)", re.MULTILINE)
TARGET: Final = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
NAMED_TEST: Final = re.compile(r"\btest_[a-z0-9_]{6,}\b")
FAULT: Final = re.compile(r"[a-z]+(?:-[a-z0-9]+)+")
FAULTS: Final = re.compile(rf"\(faults?\s+({FAULT.pattern}(?:(?:,| and)\s+{FAULT.pattern})*)")
"""`(fault tail-loss)` and `(faults slow-client and slow-endpoint, …)`."""
TODO_MARK: Final = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def _name(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def _local_links(document: Path) -> list[str]:
    links = LINK.findall(CODE_BLOCK.sub("", document.read_text()))
    return [link for link in links if not link.startswith(("http://", "https://", "mailto:"))]


def _anchor(heading: str) -> str:
    """Return a heading as its link target: lower case, no punctuation, hyphens for blanks."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _anchors(document: Path) -> set[str]:
    return {_anchor(line.lstrip("#")) for line in document.read_text().splitlines() if line.startswith("#")}


def _broken_links(document: Path) -> Iterator[str]:
    for link in _local_links(document):
        path, _, fragment = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (fragment and fragment not in _anchors(target)):
            yield f"{_name(document)}: {link}"


def test_links_of_documents_resolve() -> None:
    assert [link for document in DOCUMENTS for link in _broken_links(document)] == []


def test_every_make_command_in_a_document_exists() -> None:
    targets = set(TARGET.findall((REPOSITORY / "Makefile").read_text()))
    named = {_name(document): set(MAKE_COMMAND.findall(document.read_text())) for document in DOCUMENTS}
    assert {name: commands - targets for name, commands in named.items() if commands - targets} == {}


def test_every_make_command_is_in_the_readme() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    documented = re.findall(r"^([a-z][a-z-]*):.*## ", makefile, re.MULTILINE)
    named = set(MAKE_COMMAND.findall((REPOSITORY / "README.md").read_text()))
    assert set(documented) - {"help"} <= named


def test_every_test_that_a_document_names_exists() -> None:
    files = list((REPOSITORY / "tests").rglob("test_*.py"))
    texts = [path.read_text() for path in files]
    functions = {name for text in texts for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE)}
    known = functions | {path.stem for path in files}
    named = {_name(document): set(NAMED_TEST.findall(document.read_text())) for document in DOCUMENTS}
    assert {name: tests - known for name, tests in named.items() if tests - known} == {}


def test_every_upstream_fault_that_the_source_names_is_on_the_page() -> None:
    page = (REPOSITORY / "docs" / "upstream-faults.md").read_text()
    known = set(re.findall(r"^\| ([a-z0-9-]+) \|", page, re.MULTILINE))
    named = {name for module in modules() for found in FAULTS.findall(module.text) for name in FAULT.findall(found)}
    assert named - known == set()


def test_the_changelog_has_an_unreleased_section() -> None:
    assert "\n## [Unreleased]\n" in (REPOSITORY / "CHANGELOG.md").read_text()


def test_every_decision_is_in_the_index() -> None:
    folder = REPOSITORY / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    assert [path.name for path in folder.glob("[0-9]*.md") if f"({path.name})" not in index] == []


def test_no_decision_number_is_used_twice() -> None:
    numbers = [path.name[:4] for path in (REPOSITORY / "docs" / "decisions").glob("[0-9]*.md")]
    assert len(numbers) == len(set(numbers))


def test_every_path_in_the_architecture_page_exists() -> None:
    rooms = "|".join(path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__")
    text = (REPOSITORY / "docs" / "architecture.md").read_text()
    named = re.findall(rf"`((?:{rooms})/[\w/.]*)`", text)
    assert [name for name in named if not (PACKAGE / name).exists()] == []


def test_the_source_has_no_todos() -> None:
    assert [str(module.relative) for module in modules() if TODO_MARK.search(module.text)] == []


def test_a_module_starts_with_a_docstring_of_one_to_six_lines() -> None:
    assert [str(module.relative) for module in modules() if not 1 <= _docstring_lines(module) <= 6] == []


def _docstring_lines(module: Module) -> int:
    """Count lines of text, without blank lines and state pictures (indented)."""
    docstring = ast.get_docstring(module.tree, clean=False) or ""
    return sum(bool(line.strip()) and not line.startswith(" ") for line in docstring.splitlines())
