import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from umbilical.tunnel.event_loop import new_event_loop
from umbilical.tunnel.signals import StopRequests


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await main()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(limited())


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_and_the_second_insists(first: signal.Signals, second: signal.Signals) -> None:
    async def main() -> None:
        stop = StopRequests()
        try:
            os.kill(os.getpid(), first)
            await stop.first.wait()
            assert not stop.second.is_set()
            os.kill(os.getpid(), second)
            await stop.second.wait()
        finally:
            stop.close()

    run(main)


def test_nothing_is_asked_without_a_signal() -> None:
    async def main() -> None:
        stop = StopRequests()
        await asyncio.sleep(0.01)
        assert not stop.first.is_set()
        stop.close()

    run(main)


def test_closing_gives_the_signals_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    async def main() -> None:
        stop = StopRequests()
        assert signal.getsignal(signal.SIGTERM) is not before[0]
        stop.close()

    run(main)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == [signal.SIG_DFL, before[1]]
