"""The number of workers: what is accepted, and what `auto` is where a cgroup limits the cores."""

import os
from pathlib import Path

import pytest

from umbilical.tunnel.cores import MOST_WORKERS, parse_workers, usable_cores

ALL = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("16", 16), ("256", 256)])
def test_a_number_is_taken(text: str, count: int) -> None:
    assert parse_workers(text) == count


def test_auto_is_at_least_one_and_no_more_than_the_machine_has() -> None:
    assert 1 <= parse_workers("auto") <= min(ALL, MOST_WORKERS)


@pytest.mark.parametrize("text", ["", "0", "-1", "257", "two", "1.5", "٣", "99999999999999"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be auto or a number from 1 to 256"):
        parse_workers(text)


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", ALL), ("50000 100000", 1), ("100000 100000", 1), ("9900000 100000", ALL), ("", ALL), ("1 0", ALL)],
)
def test_the_quota_of_a_cgroup_counts(tmp_path: Path, quota: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    assert usable_cores(tmp_path / "cpu.max") == cores


def test_without_a_cgroup_file_all_cores_count(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "missing") == ALL
