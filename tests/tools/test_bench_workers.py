"""The rows of two workers against one: medians of rounds, and what meets its bars."""

import pytest

from bench_rows import DOWNLOADS, ECHOES
from bench_workers import Reading, line

ONE = [Reading(100.0, 1.0, 1.0), Reading(110.0, 1.1, 1.0), Reading(90.0, 0.9, 1.0)]


def test_a_row_has_the_medians_of_both_and_of_their_ratios() -> None:
    two = [Reading(100.0, 1.05, 0.5), Reading(99.0, 1.1, 0.45), Reading(99.0, 0.9, 0.55)]
    told = line(ECHOES[1], ONE, two)
    assert told.split()[2:] == ["16", "100", "99", "/s", "1.00", "1.00", "50%", "0.00", "0.00", "us", "met"]


@pytest.mark.parametrize(
    ("value", "cost", "share", "told"),
    [(95.0, 1.1, 0.4, "met"), (94.0, 1.0, 0.5, "NO"), (100.0, 1.11, 0.5, "NO"), (100.0, 1.0, 0.39, "NO")],
)
def test_each_bar_counts(value: float, cost: float, share: float, told: str) -> None:
    assert line(DOWNLOADS[1], ONE[:1], [Reading(value, cost, share)]).split()[-1] == told


def test_a_single_tunnel_has_one_worker_and_so_no_share() -> None:
    told = line(DOWNLOADS[0], ONE[:1], [Reading(100.0, 1.0, 0.0)])
    assert told.split() == [
        "http-connect",
        "download",
        "1",
        "100",
        "100",
        "MB/s",
        "1.00",
        "1.00",
        "0.00",
        "0.00",
        "ms/MB",
        "met",
    ]
