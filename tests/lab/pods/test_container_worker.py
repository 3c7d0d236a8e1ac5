"""Probes that decide over a container: killed and restarted, ready and not, started late."""

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.support.pod_nodes import log_of, make_node, running, shell_pod, until

from umbilical.lab.pods.pod_worker import PodWorker
from umbilical.lab.pods.records import CRASH_LOOP, ContainerRecord, Idle

pytestmark = pytest.mark.root
QUICK = {"periodSeconds": 1, "timeoutSeconds": 30}
EXISTS = {"exec": {"command": ["test", "-e", "/data/good"]}, **QUICK}


def pod_with(
    folder: Path, script: str = "trap 'exit 0' TERM; while true; do sleep 0.05; done", **fields: Any
) -> dict[str, Any]:
    """A pod that sees a folder of the test's at /data."""
    (folder / "data").mkdir()
    return shell_pod(
        script,
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
        spec={"volumes": [{"name": "data", "hostPath": {"path": str(folder / "data")}}]},
        **fields,
    )


def record_of(worker: PodWorker) -> ContainerRecord:
    return worker.record.containers[0]


def test_a_container_without_probes_is_ready_once_it_runs(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(make_node(tmp_path), pod_with(tmp_path)) as worker:
            await until(lambda: record_of(worker).is_ready)
            assert record_of(worker).is_started
            assert record_of(worker).pid is not None

    asyncio.run(run())


def test_a_failing_liveness_probe_restarts_the_container(tmp_path: Path) -> None:
    document = pod_with(tmp_path, livenessProbe={**EXISTS, "failureThreshold": 2})
    (tmp_path / "data/good").touch()

    async def run() -> None:
        async with running(make_node(tmp_path), document) as worker:
            await until(lambda: record_of(worker).is_ready)
            first = record_of(worker).pid
            (tmp_path / "data/good").unlink()
            await until(lambda: record_of(worker).restarts == 1)
            (tmp_path / "data/good").touch()
            await until(lambda: record_of(worker).pid not in (None, first))
            last = record_of(worker).last
            assert last is not None
            assert last.exit_code == 0

    asyncio.run(run())


def test_a_frozen_container_is_killed_by_its_liveness_probe(tmp_path: Path) -> None:
    serve = "import http.server as h; h.HTTPServer(('127.0.0.1', PORT), h.SimpleHTTPRequestHandler).serve_forever()"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    document = shell_pod(
        f'exec python3 -c "{serve.replace("PORT", str(port))}"',
        # Asked for its life only once it is up, however long that takes here.
        startupProbe={"httpGet": {"port": port}, "failureThreshold": 100, **QUICK},
        livenessProbe={"httpGet": {"port": port}, "failureThreshold": 1, "periodSeconds": 1, "timeoutSeconds": 4},
        readinessProbe={"httpGet": {"port": port}, **QUICK},
    )

    async def run() -> None:
        async with running(make_node(tmp_path), document) as worker:
            await until(lambda: record_of(worker).is_ready)
            pid = record_of(worker).pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            await until(lambda: record_of(worker).restarts == 1)
            last = record_of(worker).last
            assert last is not None
            assert last.exit_code == -signal.SIGKILL

    asyncio.run(run())


def test_readiness_comes_and_goes_without_a_restart(tmp_path: Path) -> None:
    document = pod_with(tmp_path, readinessProbe={**EXISTS, "failureThreshold": 1})

    async def run() -> None:
        async with running(make_node(tmp_path), document) as worker:
            await until(lambda: record_of(worker).is_started)
            assert not record_of(worker).is_ready
            (tmp_path / "data/good").touch()
            await until(lambda: record_of(worker).is_ready)
            (tmp_path / "data/good").unlink()
            await until(lambda: not record_of(worker).is_ready)
            assert record_of(worker).restarts == 0

    asyncio.run(run())


def test_nothing_else_is_asked_before_the_startup_probe_is_answered(tmp_path: Path) -> None:
    never = {"exec": {"command": ["false"]}, "failureThreshold": 1, **QUICK}
    document = pod_with(tmp_path, startupProbe={**EXISTS, "failureThreshold": 100}, livenessProbe=never)

    async def run() -> None:
        async with running(make_node(tmp_path), document) as worker:
            await until(lambda: record_of(worker).pid is not None)
            await asyncio.sleep(1.5)
            assert record_of(worker).restarts == 0
            assert not record_of(worker).is_started
            (tmp_path / "data/good").touch()
            await until(lambda: record_of(worker).restarts > 0)

    asyncio.run(run())


def test_a_startup_probe_that_is_never_answered_restarts_the_container(tmp_path: Path) -> None:
    document = pod_with(tmp_path, startupProbe={**EXISTS, "failureThreshold": 1})

    async def run() -> None:
        async with running(make_node(tmp_path), document) as worker:
            await until(lambda: record_of(worker).restarts >= 1)

    asyncio.run(run())


def test_a_container_that_keeps_ending_waits_longer_and_says_so(tmp_path: Path) -> None:
    node = make_node(tmp_path, back_off_seconds=30.0)

    async def run() -> str:
        async with running(node, shell_pod("echo again; exit 1")) as worker:
            await until(lambda: isinstance(record_of(worker).state, Idle) and record_of(worker).last is not None)
            state = record_of(worker).state
            assert isinstance(state, Idle)
            assert state.reason == CRASH_LOOP
            assert "back-off 30s" in state.message
            return log_of(node, worker)

    # The first restart came at once.
    assert asyncio.run(run()) == "again\nagain\n"


def test_the_worker_can_be_stopped_while_it_waits(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(make_node(tmp_path, back_off_seconds=1000.0), shell_pod("exit 1")) as worker:
            await until(lambda: getattr(record_of(worker).state, "reason", "") == CRASH_LOOP)

    asyncio.run(run())
