import threading
import time

import pytest
from tests.support.fault_scene import MemoryScene, fault

from umbilical.lab.errors import LabError
from umbilical.lab.faults import calls
from umbilical.lab.faults.calls import Calls
from umbilical.lab.faults.fault import Speaker
from umbilical.lab.scene import Verdict
from umbilical.lab.story import Call


def test_one_call_is_made_and_its_end_told() -> None:
    scene = MemoryScene()
    with Calls(scene, fault(), {}) as made:
        assert made.first() == scene.verdict
    assert scene.calls == 1


def test_a_call_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "FIRST_SECONDS", 0.05)
    scene, free = MemoryScene(), threading.Event()

    def hang(verdict: str) -> Verdict:
        free.wait(10)
        return scene.verdict

    monkeypatch.setattr(scene, "judge", hang)
    with Calls(scene, fault(), {}) as made:
        assert made.first() is None
    free.set()


def test_traffic_goes_on_until_the_line_is_there_whatever_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = MemoryScene()
    rounds: list[int] = []

    def call_times(count: int) -> list[float]:
        rounds.append(count)
        raise LabError("UMB855", "one failed", "as can be expected", "go on")

    monkeypatch.setattr(scene, "call_times", call_times)
    with Calls(scene, fault(needs_traffic=True), {}) as made:
        deadline = time.monotonic() + 10
        while len(rounds) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert made.first() is not None
    assert len(rounds) >= 2


def test_what_was_seen_while_it_broke_counts_as_the_first_call() -> None:
    scene = MemoryScene()
    with Calls(scene, fault(), {"seen": "connection refused"}) as made:
        assert made.first() == Verdict(Call.UNREACHABLE, "connection refused")
    assert scene.calls == 0


def test_a_fault_that_a_command_tells_of_makes_no_calls() -> None:
    scene = MemoryScene()
    with Calls(scene, fault(speaker=Speaker.COMMAND), {}) as made:
        assert made.first() is None
    assert scene.calls == 0
