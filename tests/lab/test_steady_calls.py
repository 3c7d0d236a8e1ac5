"""Calls without end against a real kube-apiserver: each is counted, and what fails is told in its words."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.control_plane import PROGRAMS, ControlPlane, control_plane

from umbilical.lab.objects import judged
from umbilical.lab.steady_calls import Calls, call_until

SECONDS = 60.0


async def _until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not claim():
            await asyncio.sleep(0.02)


async def _play(plane: ControlPlane, stop: Path, calls: Calls) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(call_until(plane.kubeconfig, judged("allow"), stop, calls))
        await _until(lambda: calls.failed > 0)
        await asyncio.to_thread(plane.kubectl, "create", "namespace", "lab")
        await _until(lambda: calls.allowed > 1)
        stop.touch()


@pytest.mark.real(*PROGRAMS)
def test_calls_go_on_after_failures_until_a_file_is_there(tmp_path: Path) -> None:
    calls = Calls()
    with control_plane(tmp_path / "plane") as plane:
        # Without its namespace an object is refused, which is a failure as good as any.
        asyncio.run(_play(plane, tmp_path / "stop", calls))
        stored = plane.kubectl("-n", "lab", "get", "configmaps", "-o=name").split()
    assert calls.failed > 0
    assert calls.allowed > 1
    assert calls.slowest_seconds > 0
    assert '"lab" not found' in calls.failures[0]
    assert "configmap/judged-allow" not in stored
