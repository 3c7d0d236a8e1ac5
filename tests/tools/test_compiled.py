"""The compiled unit is what we say it is: whole rooms, and the data path of the tunnel."""

import ast
import importlib
import os
from pathlib import Path

import pytest
from tests.architecture.rooms import Module, modules
from tests.architecture.test_imports import ARROWS

import compiled


def _dotted(path: str, source: Path) -> str:
    return ".".join(Path(path).relative_to(source).with_suffix("").parts)


def test_every_named_module_of_the_data_path_exists(repository: Path) -> None:
    folder = repository / "src" / "umbilical" / "tunnel"
    assert [name for name in compiled.COMPILED_TUNNEL if not (folder / f"{name}.py").is_file()] == []


def test_the_pure_rooms_are_compiled_whole(repository: Path) -> None:
    source = repository / "src"
    unit = {_dotted(path, source) for path in compiled.compiled_modules(source)}
    assert {"umbilical.wire.packets", "umbilical.wire.http2.connection", "umbilical.konnectivity.routing"} <= unit


def test_what_inherits_from_the_unit_for_tests_is_compiled_with_it(repository: Path) -> None:
    """And only that: a module named here that is gone, or a new heir that is not named, fails."""
    unit = {_dotted(path, repository / "src") for path in compiled.compiled_modules(repository / "src")}
    heirs = {path for path in _support(repository) if _has_heirs(repository / path, unit)}
    assert heirs == set(compiled.TEST_SUPPORT)


def _support(repository: Path) -> list[str]:
    return [str(path.relative_to(repository)) for path in (repository / "tests" / "support").glob("*.py")]


def _has_heirs(path: Path, unit: set[str]) -> bool:
    """Whether a class here inherits from the unit, or from a class of another module of support that does."""
    tree = ast.parse(path.read_text())
    origins = {
        alias.asname or alias.name: node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return any(origins.get(base) in unit for base in _inherited(tree))


def test_the_rooms_whose_tests_run_once_have_no_arrow_to_compiled_code() -> None:
    compiled_rooms = {*compiled.COMPILED_ROOMS, "tunnel"}
    rooms = {pattern.removeprefix("tests/") for pattern in compiled.INTERPRETED_TESTS} & set(ARROWS)
    assert rooms
    assert {room: ARROWS[room] & compiled_rooms for room in rooms if ARROWS[room] & compiled_rooms} == {}


@pytest.mark.skipif("UMBILICAL_EXPECT_COMPILED" not in os.environ, reason="the pure build: see `make compiled`")
def test_under_make_compiled_the_unit_really_is_compiled(repository: Path) -> None:
    source = repository / "src"
    for path in compiled.compiled_modules(source):
        module = importlib.import_module(_dotted(path, source))
        assert module.__file__ is not None
        assert module.__file__.endswith(".so"), f"{module.__name__} was loaded from {module.__file__}"


def test_no_interpreted_class_inherits_from_a_compiled_one(repository: Path) -> None:
    """At run time mypyc refuses that with a TypeError, at the class statement: compose, or state a Protocol."""
    source = repository / "src"
    unit = {_dotted(path, source) for path in compiled.compiled_modules(source)}
    heirs = [
        f"{module.dotted}: {base}"
        for module in modules()
        if module.dotted not in unit
        for base in _inherited(module.tree)
        if _origin(module, base) in unit
    ]
    assert heirs == []


def _inherited(tree: ast.Module) -> list[str]:
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return [ast.unparse(base) for node in classes for base in node.bases]


def _origin(module: Module, base: str) -> str:
    """Name the module that a base class comes from, as far as the imports tell."""
    first, _, rest = base.partition(".")
    found = next((name for name in module.imports() if name.rsplit(".", 1)[-1] == first), "")
    return found if rest else found.rpartition(".")[0]
