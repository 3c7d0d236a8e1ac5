"""Calls in a row against a real kube-apiserver, timed one by one."""

import asyncio
from pathlib import Path

import pytest
from tests.support.control_plane import PROGRAMS, control_plane

from umbilical.lab.objects import judged
from umbilical.lab.repeated_calls import call


@pytest.mark.real(*PROGRAMS)
def test_every_call_has_its_time_and_nothing_is_stored(tmp_path: Path) -> None:
    with control_plane(tmp_path / "plane") as plane:
        plane.kubectl("create", "namespace", "lab")
        seconds = asyncio.run(call(plane.kubeconfig, judged("allow"), 12))
        stored = plane.kubectl("-n", "lab", "get", "configmaps", "-o=name").split()
    assert len(seconds) == 12
    assert all(0 < each < 60 for each in seconds)
    assert "configmap/judged-allow" not in stored
