"""The pods of a node come, change and go as they are wanted."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.pod_nodes import Objects, ignore, make_node, shell_pod, until

from umbilical.lab.pods import pod_table, pod_worker
from umbilical.lab.pods.manifest import pod
from umbilical.lab.pods.node import Node
from umbilical.lab.pods.pod_networks import PodNetworks
from umbilical.lab.pods.pod_table import PodTable
from umbilical.lab.pods.pod_worker import PodWorker
from umbilical.lab.pods.spec import Pod

pytestmark = pytest.mark.root
LOOP = "trap 'echo end >> /data/log; exit 0' TERM; echo begin >> /data/log; while true; do sleep 0.05; done"


def sample(folder: Path, uid: str, name: str = "sample") -> Pod:
    (folder / "data").mkdir(exist_ok=True)
    document: dict[str, Any] = shell_pod(
        LOOP,
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
        spec={
            "terminationGracePeriodSeconds": 10,
            "volumes": [{"name": "data", "hostPath": {"path": str(folder / "data")}}],
        },
    )
    document["metadata"] |= {"uid": uid, "name": name}
    return pod(document)


def maker(node: Node) -> Callable[[Pod], PodWorker]:
    networks = PodNetworks(node)
    return lambda wanted: PodWorker(wanted, node, Objects(), networks, ignore)


def log(folder: Path) -> list[str]:
    path = folder / "data/log"
    return path.read_text().split() if path.exists() else []


def test_a_changed_pod_begins_when_its_older_self_is_gone(tmp_path: Path) -> None:
    make = maker(make_node(tmp_path))

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            table = PodTable(group, ignore)
            table.want("static", {"one": sample(tmp_path, "one")}, make)
            await until(lambda: log(tmp_path) == ["begin"])
            table.want("static", {"two": sample(tmp_path, "two")}, make)
            assert len(table.records()) == 2
            await until(lambda: len(log(tmp_path)) == 3)
            assert log(tmp_path) == ["begin", "end", "begin"]
            table.want("static", {}, make)
            await until(lambda: not table.records())

    asyncio.run(run())
    assert log(tmp_path) == ["begin", "end", "begin", "end"]


def test_a_source_answers_for_its_own_pods_alone(tmp_path: Path) -> None:
    make = maker(make_node(tmp_path))

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            table = PodTable(group, ignore)
            table.want("static", {"one": sample(tmp_path, "one", "a")}, make)
            table.want("daemons", {"two": sample(tmp_path, "two", "b")}, make)
            await until(lambda: log(tmp_path) == ["begin"] * 2)
            table.want("static", {}, make)
            await until(lambda: table.record("one") is None)
            assert table.record("two") is not None
            table.stop("two")
            table.stop("two")
            table.stop("unknown")
            await until(lambda: not table.records())

    asyncio.run(run())


def test_a_shorter_grace_time_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_worker, "GRACE_CAP_SECONDS", 1000.0)
    make = maker(make_node(tmp_path))
    document = shell_pod("trap '' TERM; while true; do sleep 1; done", spec={"terminationGracePeriodSeconds": 1000})

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            table = PodTable(group, ignore)
            wanted = pod(document)
            table.want("api", {wanted.uid: wanted}, make)
            await until(lambda: any(each.is_ready for each in table.records()))
            table.stop(wanted.uid, grace_seconds=0.1)
            await until(lambda: not table.records())

    asyncio.run(run())


def test_a_pod_that_makes_the_runner_stumble_begins_anew_and_hurts_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pod_table, "AGAIN_SECONDS", 0.05)
    node = make_node(tmp_path)
    # A file where the folder of its log should be.
    place = node.folders.logs / "test_sample_one"
    place.touch()

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            table = PodTable(group, ignore)
            table.want("static", {"one": sample(tmp_path, "one")}, maker(node))
            await until(lambda: "stumbled" in caplog.text)
            place.unlink()
            await until(lambda: log(tmp_path) == ["begin"])
            table.want("static", {}, maker(node))

    asyncio.run(run())
