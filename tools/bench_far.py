"""The far rows: how long they are measured, and what is made of an echo on a slow link. Starts no process."""

from collections.abc import Mapping
from dataclasses import dataclass

from bench_rows import BenchRow, Sample


@dataclass(frozen=True)
class FarPlan:
    """Lengths of the far rows, and a divisor of the round trips for a run that ignores the numbers."""

    rounds: int
    ramp: bool = True
    fill_seconds: float = 2.0
    slow_seconds: float = 10.0
    stall_seconds: float = 2.0
    divisor: float = 1.0

    def told(self, seconds: float) -> str:
        longer = ", transfers by a second per 25 ms of round trip longer, by at most 4" if self.ramp else ""
        return f"median of {self.rounds} rounds of {seconds:g} s{longer}"

    def told_slow(self) -> str:
        return (
            "2 MB/s and 50 ms, with a queue of one bandwidth-delay product and 64 KiB, for"
            f" {self.slow_seconds:g} s after {self.fill_seconds:g} s of downloads; stall = it passes nothing for the"
            f" first {self.stall_seconds:g} s of them"
        )

    def ramp_seconds(self, row: BenchRow) -> float:
        """Return what a transfer takes longer, because its windows grow by round trips: up to 4 s."""
        return min(4.0, row.round_trip_ms / 25) if self.ramp and row.is_transfer else 0.0

    def settle_seconds(self, row: BenchRow) -> float:
        """Return how long bytes of the row before may be under way after its end."""
        return 5 * row.round_trip_ms / 1e3 / self.divisor


def slow_sample(exchanged: Mapping[str, float], moved: Mapping[str, float]) -> Sample:
    """Make one sample from the echo and the transfers beside it; an echo that failed is an ended tunnel."""
    return {
        "value": exchanged["rate"],
        "p50_us": exchanged.get("p50_us", 0.0),
        "p99_us": exchanged.get("p99_us", 0.0),
        "p99_seconds": exchanged.get("p99_us", 0.0) / 1e6,
        "longest_us": exchanged.get("longest_us", 0.0),
        "unfinished": exchanged.get("unfinished", 0.0),
        "ended": exchanged["errors"] + moved.get("ended", 0.0),
        "bulk": moved.get("mb_per_second", 0.0),
    }
