"""Questions and answers between two processes, here two ends in one."""

import asyncio
import socket
from typing import Any

import pytest

from umbilical.tunnel.control import Control, Handle, PeerGone, QuestionFailed
from umbilical.tunnel.daemon import end_task, own_task


async def _pair(handles: dict[str, Handle]) -> tuple[Control, Control, list["asyncio.Task[Any]"]]:
    one, other = socket.socketpair()
    asking, answering = Control({}), Control(handles)
    await asking.open(one)
    await answering.open(other)
    return asking, answering, [own_task(asking.run()), own_task(answering.run())]


async def _double(given: Any) -> Any:
    await asyncio.sleep(0.02 if given == 1 else 0)
    return given * 2


async def _refuse(given: Any) -> Any:
    raise QuestionFailed(f"not {given}")


async def _break(given: Any) -> Any:
    raise ZeroDivisionError


async def _hang(given: Any) -> Any:
    await asyncio.Event().wait()


async def test_each_question_gets_its_own_answer_whatever_their_order() -> None:
    asking, _, tasks = await _pair({"double": _double})
    assert await asyncio.gather(*[asking.ask("double", number) for number in range(5)]) == [0, 2, 4, 6, 8]
    assert await asking.ask("double", "ä\n" * 100_000) == "ä\n" * 200_000
    for task in tasks:
        await end_task(task)


async def test_a_refusal_and_a_bug_are_told_and_the_connection_goes_on() -> None:
    asking, _, tasks = await _pair({"refuse": _refuse, "break": _break, "double": _double})
    with pytest.raises(QuestionFailed, match="not now"):
        await asking.ask("refuse", "now")
    with pytest.raises(QuestionFailed, match="ZeroDivisionError"):
        await asking.ask("break")
    assert await asking.ask("double", 4) == 8
    for task in tasks:
        await end_task(task)


async def test_a_question_ends_with_its_time_or_with_the_other_process() -> None:
    asking, _, tasks = await _pair({"hang": _hang})
    with pytest.raises(PeerGone, match=r"within 0\.01 s"):
        await asking.ask("hang", seconds=0.01)
    waiting = own_task(asking.ask("hang"))
    await asyncio.sleep(0)
    await end_task(tasks[1])
    with pytest.raises(PeerGone, match="it has ended"):
        await waiting
    await tasks[0]
    with pytest.raises(PeerGone, match="it has ended"):
        await asking.ask("hang")
