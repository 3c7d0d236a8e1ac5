import pytest

from bench_crowd import CrowdSize, share


@pytest.mark.parametrize(("whole", "parts"), [(200, 4), (10_000, 4), (7, 3), (1, 1), (2, 5)])
def test_the_shares_make_up_the_whole(whole: int, parts: int) -> None:
    shares = [share(whole, parts, number) for number in range(parts)]
    assert sum(shares) == whole
    assert max(shares) - min(shares) <= 1


def test_a_crowd_says_its_size() -> None:
    assert str(CrowdSize(agents=200, tunnels=10_000, processes=4)) == "10,000 idle tunnels over 200 agent connections"
