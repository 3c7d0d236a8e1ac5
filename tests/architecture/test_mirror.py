"""Tests mirror the tree: the test of `src/umbilical/a/b.py` is `tests/a/test_b.py`, so nobody has to search."""

from pathlib import Path
from typing import Final

import pytest
from tests.architecture.rooms import PACKAGE, TESTS, Module, modules

# Modules with code and no test file of their own, each with where it is tested instead. May only shrink: an entry
# whose test file exists fails.
EXCEPTIONS: Final[dict[str, str]] = {}
# Folders of tests that mirror no room: they cross rooms.
CROSSING: Final = frozenset({"architecture", "interop", "bench", "fuzz", "tools", "soak", "faults", "chaos"})


def _mirror(relative: Path) -> Path:
    return TESTS / relative.parent / f"test_{relative.name}"


def _candidates() -> list[Module]:
    return [module for module in modules() if module.has_code() and str(module.relative) not in EXCEPTIONS]


@pytest.mark.parametrize("module", _candidates(), ids=lambda module: module.dotted)
def test_a_module_with_code_has_its_own_test_file(module: Module) -> None:
    assert _mirror(module.relative).is_file(), f"write {_mirror(module.relative).relative_to(TESTS.parent)}"


def test_an_exception_is_needed_and_reasoned() -> None:
    for name, reason in EXCEPTIONS.items():
        assert (PACKAGE / name).is_file(), f"{name} is gone: remove the exception"
        assert not _mirror(Path(name)).exists(), f"{name} has its test now: remove the exception"
        assert reason


def test_the_list_of_exceptions_stays_short() -> None:
    assert len(EXCEPTIONS) <= 5


def _room_tests() -> list[Path]:
    tests = [path.relative_to(TESTS) for path in sorted(TESTS.rglob("test_*.py"))]
    return [path for path in tests if len(path.parts) > 1 and path.parts[0] not in CROSSING]


@pytest.mark.parametrize("path", _room_tests(), ids=str)
def test_a_test_file_mirrors_a_module_that_exists(path: Path) -> None:
    """`test_b_fuzz.py` and the like may stand beside `test_b.py`: the longest module name that fits counts."""
    stem = path.stem.removeprefix("test_")
    names = {module.path.stem for module in modules() if module.relative.parent == path.parent}
    assert any(stem == name or stem.startswith(f"{name}_") for name in names), f"no module for tests/{path}"
