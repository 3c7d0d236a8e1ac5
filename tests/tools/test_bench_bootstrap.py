"""The bench of patch and verify: that it runs what it says, and says what came out."""

import sys
from pathlib import Path

import pytest

import bench_bootstrap
from bench_bootstrap import Result, Row, line, measure


def test_a_median_past_the_goal_is_said_and_fails_nothing() -> None:
    told = line(Result(Row("patch", ()), (0.5, 1.5, 1.2)))

    assert "1.200 s" in told
    assert "0.500..1.500" in told
    assert told.endswith("MISSED")


def test_a_yardstick_has_no_goal() -> None:
    assert "goal" not in line(Result(Row("jq", (), goal_seconds=None), (9.0,)))


def test_a_command_that_fails_has_no_time() -> None:
    row = Row("broken", (sys.executable, "-c", "import sys; sys.exit('no such file')"))

    with pytest.raises(RuntimeError, match="no such file"):
        measure(row, 1)


def test_what_a_command_would_not_overwrite_is_taken_away_first(tmp_path: Path) -> None:
    made = tmp_path / "made"
    row = Row("make", (sys.executable, "-c", f"open({str(made)!r}, 'x')"), makes=made)

    assert len(measure(row, 2).seconds) == 2


def test_every_row_runs_on_a_small_config(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench_bootstrap, "CONFIG_BYTES", 100_000)

    assert bench_bootstrap.main(["--smoke"]) == 0
    assert "bootstrap verify, patched" in capsys.readouterr().out
