"""Samples of the bench, made up for the tests of its arithmetic, tables and pictures."""

from typing import Final

from bench_rows import OURS, UPSTREAM, BenchRow, Results
from bench_tables import Conditions

ECHO: Final = BenchRow("rate", "http-connect", "echo", 16)
DOWNLOAD: Final = BenchRow("rate", "http-connect", "download", 8)
IDLE: Final = BenchRow("memory", "http-connect", "idle")
CONDITIONS: Final = Conditions(
    {"date": "today", "upstream": "v0 & more"},
    rounds=5,
    seconds=2.0,
    rest_seconds=5.0,
    stuck_seconds=5.0,
    tunnels=1000,
    starts=4,
    crowd="a crowd",
    far="three rounds",
    slow="a slow link",
)


def rate(value: float, cost: float = 10.0, generator: float = 1.0, others: float = 0.0) -> dict[str, float]:
    return {"value": value, "cost": cost, "generator": generator, "others": others, "p50_us": 5.0, "p99_us": 9.0}


def both(upstream: list[float], ours: list[float], row: BenchRow = ECHO) -> Results:
    results = Results()
    for pair, values in ((UPSTREAM, upstream), (OURS, ours)):
        for round_number, value in enumerate(values, 1):
            results.add(row, pair, round_number, rate(value))
    return results
