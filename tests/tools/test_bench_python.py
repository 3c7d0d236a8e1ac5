import sys
from pathlib import Path

import pytest

import bench_python


def program(folder: Path, name: str, status: int) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\nexit {status}\n")
    path.chmod(0o755)
    return path


def test_a_build_with_pgo_is_told_by_its_configure_arguments() -> None:
    assert bench_python.is_optimised("'--prefix=/usr' '--enable-optimizations' '--with-lto'")
    assert not bench_python.is_optimised("'--prefix=/usr'")
    assert not bench_python.is_optimised(None)


def test_the_first_interpreter_that_says_yes_is_taken(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    plain, good, better = (program(tmp_path, name, status) for name, status in (("a", 1), ("b", 0), ("c", 0)))
    assert bench_python.optimised((missing, plain, good, better)) == good
    assert bench_python.optimised((missing, plain)) is None


def test_without_an_optimised_interpreter_the_bench_runs_on_this_one_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sysconfig.get_config_var", lambda _: "")
    chosen = bench_python.choose((program(tmp_path, "plain", 1),), tmp_path / "environment")
    assert chosen == Path(sys.executable)
    assert "no optimised Python" in capsys.readouterr().err


def test_an_environment_that_cannot_be_made_is_none(tmp_path: Path) -> None:
    assert bench_python.make_environment(program(tmp_path, "broken", 3), tmp_path / "environment") is None
