"""The shape of the house: no import cycle, no crumbs, and tables of names that match something."""

import ast
from collections import defaultdict
from functools import cache
from typing import Final

from tests.architecture.rooms import PACKAGE, Module, modules

MOST_MODULES: Final = 600
CRUMB_LINES: Final = 40
EXCUSE: Final = "a module of its own"
"""What the docstring of a small module with one importer says, with the reason behind it."""


@cache
def _imports() -> dict[str, frozenset[str]]:
    """Which modules of ours each imports, lazily and for type checkers included."""
    known = {module.dotted for module in modules()}

    def module_of(name: str) -> str | None:
        return name if name in known else name.rpartition(".")[0] if name.rpartition(".")[0] in known else None

    return {
        module.dotted: frozenset(found for name in module.imports() if (found := module_of(name))) - {module.dotted}
        for module in modules()
    }


def _reachable(start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(_imports()[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(_imports()[name])
    return seen


def test_no_module_imports_itself_over_others() -> None:
    assert [name for name in _imports() if name in _reachable(name)] == []


def test_a_small_module_with_one_importer_says_why_it_is_one() -> None:
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, imported in _imports().items():
        for each in imported:
            importers[each].add(name)

    def is_crumb(module: Module) -> bool:
        is_small = module.path.name != "__init__.py" and module.text.count("\n") < CRUMB_LINES
        return is_small and len(importers[module.dotted]) == 1

    crumbs = [module for module in modules() if is_crumb(module)]
    assert [str(one.relative) for one in crumbs if EXCUSE not in (ast.get_docstring(one.tree) or "").lower()] == []


def test_there_are_not_more_modules_than_a_reader_can_find_a_way_in() -> None:
    assert len(list(PACKAGE.rglob("*.py"))) <= MOST_MODULES
