"""Coroutines as tests: each on an event loop of its own, within bounds, and nothing of it may be left at its end."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from umbilical.tunnel.event_loop import new_event_loop

PATIENCE_SECONDS: Final = 60.0
Result = TypeVar("Result")


def play(script: Coroutine[Any, Any, Result]) -> Result:
    """Run on the programs' event loop; when it ends neither a task nor a handler of signals may be left."""
    before = signal.getsignal(signal.SIGTERM)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        result = runner.run(_bounded(script))
        # The loop leaves the default, also where an earlier test had something else.
        assert signal.getsignal(signal.SIGTERM) in (before, signal.SIG_DFL)
        return result


async def _bounded(script: Coroutine[Any, Any, Result]) -> Result:
    async with asyncio.timeout(2 * PATIENCE_SECONDS):
        result = await script
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:  # the far end of a connection may need a moment to see that it is over
        await asyncio.wait(left, timeout=PATIENCE_SECONDS)
    assert all(task.done() for task in left), f"tasks are left: {left}"
    return result
