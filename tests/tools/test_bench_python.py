import sys
from pathlib import Path

import pytest

import bench_python


def program(folder: Path, name: str, line: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


def test_the_sample_runs_on_this_interpreter() -> None:
    seconds = bench_python.seconds_of(Path(sys.executable))
    assert seconds is not None
    assert seconds > 0


@pytest.mark.parametrize("line", ["exit 1", "echo nonsense"])
def test_an_interpreter_that_cannot_run_the_sample_has_no_time(tmp_path: Path, line: str) -> None:
    assert bench_python.seconds_of(program(tmp_path, "odd", line)) is None
    assert bench_python.seconds_of(tmp_path / "missing") is None


def test_the_fastest_is_taken_and_at_about_equal_speed_the_systems_own(tmp_path: Path) -> None:
    here = program(tmp_path, "here", "echo 1.00")
    slow, same, fast, faster = (
        program(tmp_path, name, f"echo {seconds}")
        for name, seconds in (("a", 1.06), ("b", 1.01), ("c", 0.8), ("d", 0.7))
    )
    assert bench_python.fastest(here, (slow, tmp_path / "missing")) == here
    assert bench_python.fastest(here, (slow, same)) == same
    assert bench_python.fastest(here, (same, fast, faster)) == faster


def test_a_faster_one_that_cannot_make_an_environment_is_named_and_passed_over(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    here = program(tmp_path, "here", "echo 1.00")
    broken = program(tmp_path, "broken", 'case "$1" in -c) echo 0.5;; *) exit 3;; esac')
    assert bench_python.choose(here, (broken,), tmp_path / "environment") == here
    assert "broken is faster, but cannot be used" in capfd.readouterr().err


def test_a_faster_one_gets_an_environment_of_its_own(tmp_path: Path) -> None:
    here = program(tmp_path, "here", "echo 1.00")
    better = program(tmp_path, "better", "echo 0.5")
    assert bench_python.choose(here, (better,), tmp_path / "environment") == tmp_path / "environment" / "bin" / "python"
