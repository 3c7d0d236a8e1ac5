"""The fuzzer around atheris: what it reads from a run, how it makes inputs small, and where it cannot run."""

import importlib.util
import sys
from pathlib import Path

import pytest

import fuzz

OUTPUT = """\
INFO: Instrumenting umbilical.wire.http1
#103\tINITED cov: 150 ft: 200 corp: 20/1Kb exec/s: 0 rss: 43Mb
#2048\tNEW    cov: 163 ft: 210 corp: 21/1Kb lim: 23 exec/s: 0 rss: 43Mb L: 9/99 MS: 1 InsertByte-
 === Uncaught Python exception: ===
Traceback (most recent call last):
  File "target.py", line 1, in target
IndexError: index out of range

==1780== ERROR: libFuzzer: fuzz target exited
MS: 1 CrossOver-; base unit: a675
stat::number_of_executed_units: 9891
stat::average_exec_per_sec:     1236
"""


def _fails_with_x(octets: bytes) -> None:
    if b"x" in octets:
        raise ValueError("x")
    assert octets.count(b"y") < 2


def test_a_run_is_read_from_what_libfuzzer_prints() -> None:
    seen = fuzz.outcome("connect_heads", OUTPUT, Path("found-crash-1"))
    assert (seen.executions, seen.per_second, seen.new_inputs, seen.edges) == (9891, 1236, 1, 163)
    assert seen.trace.startswith("Traceback")
    assert "base unit" not in seen.trace
    assert seen.row().split() == ["connect_heads", "9,891", "1,236", "1", "163", "found-crash-1"]


def test_an_input_is_made_small_without_changing_its_fault() -> None:
    assert fuzz.shrink(_fails_with_x, b"aaaaxbbbbxyyccccc") == b"x"
    assert fuzz.shrink(_fails_with_x, b"aaaaybbbbyccccc") == b"yy"
    assert fuzz.shrink(_fails_with_x, b"harmless") == b"harmless"


def test_without_atheris_the_message_names_the_pythons_that_have_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["fuzz.py"])
    assert fuzz.main() == 4
    what, why, remedy = capsys.readouterr().err.splitlines()
    assert what == "UMB921 fuzzing needs atheris"
    assert "wheels for Python 3.11 to 3.13" in why
    assert remedy.startswith("  next: make fuzz PYTHON=/path/to/python3.11")


def test_every_target_has_a_corpus_and_every_corpus_a_target() -> None:
    assert [path.name for path in sorted((fuzz.FOLDER / "corpus").iterdir())] == fuzz.targets()
