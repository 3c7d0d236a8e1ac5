"""No import cycles, no tiny modules without a reason, and a limit for the number of modules."""

import ast
from collections import defaultdict
from functools import cache
from typing import Final

from tests.architecture.rooms import PACKAGE, Module, modules

MOST_MODULES: Final = 630
SMALL_LINES: Final = 40
OWN_MODULE: Final = "a module of its own"
"""Text in the docstring of a small module with one importer, followed by the reason."""


@cache
def _imports() -> dict[str, frozenset[str]]:
    """The modules of this package that each module imports, including lazy and TYPE_CHECKING imports."""
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


def test_there_are_no_import_cycles() -> None:
    assert [name for name in _imports() if name in _reachable(name)] == []


def test_a_small_module_with_one_importer_gives_a_reason() -> None:
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, imported in _imports().items():
        for each in imported:
            importers[each].add(name)

    def is_tiny(module: Module) -> bool:
        is_small = module.path.name != "__init__.py" and module.text.count("\n") < SMALL_LINES
        return is_small and len(importers[module.dotted]) == 1

    tiny = [module for module in modules() if is_tiny(module)]
    assert [str(one.relative) for one in tiny if OWN_MODULE not in (ast.get_docstring(one.tree) or "").lower()] == []


def test_the_number_of_modules_is_limited() -> None:
    assert len(list(PACKAGE.rglob("*.py"))) <= MOST_MODULES
