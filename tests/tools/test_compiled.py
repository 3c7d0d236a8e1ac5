"""Compiled modules: built, benched, and the environment that they run in."""

import ast
import importlib
import os
import sys
import time
from pathlib import Path

import pytest
from tests.architecture.rooms import Module, modules
from tests.architecture.test_imports import MAY_IMPORT

import bench_compiled
import compiled
import environment


def _dotted(path: str, source: Path) -> str:
    return ".".join(Path(path).relative_to(source).with_suffix("").parts)


def test_every_test_that_is_left_out_exists(repository: Path) -> None:
    for pattern in (*compiled.INTERPRETED_TESTS, *compiled.TEST_SUPPORT):
        assert compiled.matches(repository, pattern)


@pytest.mark.parametrize(("names", "gone"), [("COMPILED_ROOMS", "wires"), ("COMPILED_TUNNEL", "idle_reaper")])
def test_a_missing_module_ends_the_build(
    repository: Path, monkeypatch: pytest.MonkeyPatch, names: str, gone: str
) -> None:
    monkeypatch.setattr(compiled, names, (gone,))
    with pytest.raises(FileNotFoundError, match=gone):
        compiled.compiled_modules(repository / "src")


def test_the_pure_rooms_are_compiled_whole(repository: Path) -> None:
    source = repository / "src"
    unit = {_dotted(path, source) for path in compiled.compiled_modules(source)}
    assert {"umbilical.wire.packets", "umbilical.wire.http2.connection", "umbilical.konnectivity.routing"} <= unit


def test_what_inherits_from_the_unit_for_tests_is_compiled_with_it(repository: Path) -> None:
    """And only that: a module named here that is gone, or a new heir that is not named, fails."""
    unit = {_dotted(path, repository / "src") for path in compiled.compiled_modules(repository / "src")}
    support = (repository / "tests" / "support").glob("*.py")
    heirs = {str(path.relative_to(repository)) for path in support if _has_heirs(path, unit)}
    assert heirs == set(compiled.TEST_SUPPORT)


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
    """By what they import, not by what they may: `lab` may import all, and real labs run its programs that dial."""
    unit = tuple(f"umbilical.{room}" for room in (*compiled.COMPILED_ROOMS, "tunnel"))
    rooms = {pattern.removeprefix("tests/") for pattern in compiled.INTERPRETED_TESTS} & set(MAY_IMPORT)
    assert rooms
    importers = [module for module in modules() if any(name.startswith(unit) for name in module.imports())]
    assert [str(module.relative) for module in importers if module.room in rooms - {"lab"}] == []


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
    """Return the module of a base class, as far as the imports show it."""
    first, _, rest = base.partition(".")
    found = next((name for name in module.imports() if name.rsplit(".", 1)[-1] == first), "")
    return found if rest else found.rpartition(".")[0]


# In place of mypyc: writes what a build would, and counts its runs.
BUILD = """
import os, pathlib, sys
assert os.environ["UMBILICAL_COMPILE"] == "1"
assert sys.argv[1:] == ["--quiet", "build_ext", "--inplace"]
pathlib.Path("src/package/part.so").write_text("built")
with open(os.environ["BUILDS"], "a") as builds: builds.write("x")
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "tree"
    (root / "src" / "package").mkdir(parents=True)
    (root / "src" / "package" / "part.py").write_text("x = 1\n")
    (root / "setup.py").write_text(BUILD)
    monkeypatch.setenv("BUILDS", str(tmp_path / "builds"))
    return root


def test_a_source_is_built_once_and_outside_the_tree(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = bench_compiled.compiled_source(tree, cache)
    assert (first / "package" / "part.so").read_text() == "built"
    assert not (tree / "src" / "package" / "part.so").exists()
    assert bench_compiled.compiled_source(tree, cache) == first
    assert (tmp_path / "builds").read_text() == "x"
    assert list(cache.iterdir()) == [first]


def test_an_edit_makes_another_one_and_old_ones_are_forgotten(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    made = []
    for number in range(bench_compiled.KEPT + 2):
        (tree / "src" / "package" / "part.py").write_text(f"x = {number}\n")
        made.append(bench_compiled.compiled_source(tree, cache))
        age = time.time() - 1000 + number
        os.utime(made[-1], (age, age))
    assert len(set(made)) == len(made)
    kept = set(cache.iterdir())
    assert made[-1] in kept
    assert len(kept) <= bench_compiled.KEPT + 1


def test_another_interpreter_makes_another_one(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = bench_compiled.key(tree)
    monkeypatch.setattr(sys, "version", "another")
    assert bench_compiled.key(tree) != here


def test_a_build_that_fails_is_reported_and_leaves_nothing(tree: Path, tmp_path: Path) -> None:
    (tree / "setup.py").write_text("import sys\nsys.exit('part.py:1: error: no such type')\n")
    with pytest.raises(bench_compiled.BuildFailed, match=r"part\.py:1: error: no such type"):
        bench_compiled.compiled_source(tree, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_pythons_are_accepted_or_refused_with_the_next_step() -> None:
    for version in ((3, 11), (3, 13)):
        environment.require_python(version, "python3")
    with pytest.raises(environment.EnvironmentRefused, match=r"next: apt-get install python3\.11-venv"):
        environment.require_venv((3, 11), (True, False))
    with pytest.raises(environment.EnvironmentRefused) as caught:
        environment.require_python((3, 9), "/usr/bin/python3")
    what, why, remedy = str(caught.value).splitlines()
    assert what == "UMB912 Python 3.9 is too old"
    assert why.startswith("  why: this is /usr/bin/python3;")
    assert remedy == "  next: use a newer one: make setup PYTHON=/path/to/python3.11"


def test_a_step_that_fails_shows_its_last_line_and_its_command() -> None:
    with pytest.raises(environment.EnvironmentRefused) as caught:
        environment._step("packages", ["sh", "-c", "echo first >&2; echo last >&2; exit 3"])
    assert str(caught.value).splitlines()[:2] == ["UMB914 setup failed: packages", "  why: last"]


@pytest.mark.parametrize(
    ("extra", "stamps"),
    [
        ("lab", {".ready-lab"}),
        ("dev", {".ready-dev", ".ready-lab"}),
        ("fuzz", {".ready-dev", ".ready-fuzz", ".ready-lab"}),
    ],
)
def test_an_extra_is_installed_and_stamped_with_those_that_it_includes(
    extra: str, stamps: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(environment, "_runs", lambda python: True)
    monkeypatch.setattr(environment, "_step", lambda what, command: commands.append(command))
    environment.make(tmp_path, extra)
    assert [command[-1] for command in commands] == [f"{environment.ROOT}[{extra}]"]
    assert {path.name for path in tmp_path.iterdir()} == stamps
