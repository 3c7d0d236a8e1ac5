from collections import Counter

import bench_transfers
from transfers import TransferResults


def test_the_bar_is_that_none_of_ours_is_lost() -> None:
    whole = TransferResults(2_000, Counter(), 10.0)
    broken = TransferResults(1_990, Counter({"bytes differ": 7, "the end came early": 3}), 10.0)

    assert bench_transfers.line("ours", 5_000_000, whole).split() == ["ours", "2,000", "0", "1,000", "MB/s", "met"]
    assert "NO" in bench_transfers.line("ours", 5_000_000, broken)
    assert bench_transfers.line("upstream", 5_000_000, broken).endswith("7: bytes differ; 3: the end came early")
