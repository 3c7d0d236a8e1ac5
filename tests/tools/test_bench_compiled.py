"""The cache of the compiled form, with a small package and a build of its own in place of mypyc's minutes."""

import os
import sys
import time
from pathlib import Path

import pytest

import bench_compiled

# Stands for mypyc: leaves beside the source what a build would, and counts how often it ran.
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


def _builds(tree: Path) -> int:
    return len((tree.parent / "builds").read_text())


def test_a_source_is_built_once_and_outside_the_tree(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = bench_compiled.compiled_source(tree, cache)
    assert (first / "package" / "part.so").read_text() == "built"
    assert not (tree / "src" / "package" / "part.so").exists()
    assert bench_compiled.compiled_source(tree, cache) == first
    assert _builds(tree) == 1
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


def test_a_build_that_fails_is_told_and_leaves_nothing(tree: Path, tmp_path: Path) -> None:
    (tree / "setup.py").write_text("import sys\nsys.exit('part.py:1: error: no such type')\n")
    with pytest.raises(bench_compiled.BuildFailed, match=r"part\.py:1: error: no such type"):
        bench_compiled.compiled_source(tree, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
