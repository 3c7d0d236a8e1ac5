"""Shares of the open files, and the log of a shortage."""

import logging

import pytest
from tests.support.file_limits import no_descriptors
from tests.support.fixture_types import Logged

from umbilical.tunnel.descriptors import OVER_SECONDS, FileShares, FileWatch, Shortage
from umbilical.tunnel.loop import Loop


@pytest.mark.parametrize("limit", [32, 64, 256, 1024, 1 << 20])
def test_health_has_more_than_agents_and_these_more_than_clients_and_strangers_the_least(limit: int) -> None:
    shares = FileShares(limit)
    assert limit // 2 <= shares.for_strangers < shares.for_clients < shares.for_anything < limit


def test_far_from_the_limit_every_file_is_free_and_at_the_limit_none(plane: Loop) -> None:
    files = FileWatch(plane)
    assert files.is_free_below(files.shares.for_strangers, 0)
    with no_descriptors() as limit:
        assert not files.is_free_below(limit, 0)
    assert files.is_free_below(limit + 1, 0)
    assert not files.is_free_below(limit, 0)


def test_a_shortage_is_two_lines_however_often_it_is_met(caplog: Logged) -> None:
    caplog.set_level(logging.INFO)
    shortage = Shortage()
    assert shortage.refused("new clients wait", 100.0)
    assert not any(shortage.refused("new clients wait", 100.0 + second / 10) for second in range(1, 50))
    assert shortage.seconds_left(105.0) == pytest.approx(OVER_SECONDS - 0.1)
    assert shortage.seconds_left(104.9 + OVER_SECONDS) == 0
    begin, end = caplog.messages
    assert begin.startswith("UMB420 open files run short: new clients wait; the limit of open files is ")
    assert end == "open files suffice again after 4.9 s: connections waited or failed 50 times"
    assert shortage.refused("new clients wait", 200.0)
