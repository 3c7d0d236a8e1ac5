"""Downloads of 5 MB, many at once through one pair: every byte arrives (fault lost-streams)."""

import asyncio

import pytest
from tests.interop.conftest import FAULTY, FAULTY_REAL, StartPair
from tests.support.tunnel_pair import Shape

import transfers

pytestmark = FAULTY_REAL


@pytest.mark.parametrize(
    ("count", "at_once"), [(60, 60), pytest.param(2_000, 100, marks=[pytest.mark.soak, pytest.mark.timeout(1500)])]
)
def test_no_byte_of_many_downloads_at_once_is_lost(start_pair: StartPair, count: int, at_once: int) -> None:
    pair = start_pair(Shape(FAULTY, FAULTY, "http-connect"))
    results = asyncio.run(transfers.run(pair.socket_path, count, 5_000_000, at_once))
    assert (results.whole, dict(results.lost)) == (count, {})
