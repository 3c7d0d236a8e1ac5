"""The runner of one node: files become pods, pods become a report, and the end leaves nothing. Whole labs:
test_process_runner.py.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.pod_nodes import make_node, shell_pod, until

from umbilical.lab import images, podrunner
from umbilical.lab.podrunner import PodRunner, main
from umbilical.lab.pods import pod_worker
from umbilical.lab.pods.node import Node

LOOP = "trap 'exit 0' TERM; echo begun; while true; do sleep 0.05; done"


@asynccontextmanager
async def running(node: Node) -> AsyncIterator[PodRunner]:
    runner = PodRunner(node)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runner.run())
        try:
            yield runner
        finally:
            task.cancel()


def reported(node: Node) -> list[dict[str, Any]]:
    if not node.folders.status_file.exists():
        return []
    found = json.loads(node.folders.status_file.read_bytes())["pods"]
    assert isinstance(found, list)
    return found


def is_ready(node: Node, count: int = 1) -> bool:
    pods = reported(node)
    return len(pods) == count and all(container["ready"] for pod in pods for container in pod["containers"])


@pytest.mark.root
def test_a_file_becomes_a_pod_and_a_pod_becomes_a_report(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    (node.folders.manifests / "sample.yaml").write_text(yaml.safe_dump(shell_pod(LOOP)))

    async def run() -> None:
        async with running(node):
            await until(lambda: is_ready(node))
            (pod,) = reported(node)
            assert (pod["namespace"], pod["name"], pod["address"]) == ("test", "sample-node-1", "127.0.0.1")
            assert pod["phase"] == "Running"
            (node.folders.manifests / "sample.yaml").unlink()
            await until(lambda: reported(node) == [])

    asyncio.run(run())


@pytest.mark.root
def test_daemons_run_with_secrets_from_the_same_folder(tmp_path: Path) -> None:
    node = make_node(tmp_path, labels={"role": "worker"})
    spec = shell_pod(
        "cat /pki/key; " + LOOP,
        volumeMounts=[{"name": "pki", "mountPath": "/pki"}],
        spec={"volumes": [{"name": "pki", "secret": {"secretName": "s"}}], "nodeSelector": {"role": "worker"}},
    )["spec"]
    daemon = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agents", "namespace": "ns"},
        "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}},
    }
    secret = {"kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}, "stringData": {"key": "hidden "}}
    (node.folders.daemons / "agents.yaml").write_text(yaml.safe_dump_all([daemon]))

    async def run() -> str:
        async with running(node):
            await until(lambda: bool(reported(node)) and "not found" in reported(node)[0]["trouble"])
            (node.folders.daemons / "secret.yaml").write_text(yaml.safe_dump(secret))
            await until(lambda: is_ready(node))
            (log,) = node.folders.logs.glob("ns_agents-*/main/0.log")
            await until(lambda: "begun" in log.read_text())
            return log.read_text()

    assert asyncio.run(run()) == "hidden begun\n"


@pytest.mark.root
def test_the_end_of_the_runner_is_the_end_of_its_pods_and_mounts(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    mounts = Path("/proc/self/mounts").read_text()
    (node.folders.manifests / "sample.yaml").write_text(yaml.safe_dump(shell_pod(LOOP)))

    async def run() -> int:
        async with running(node):
            await until(lambda: is_ready(node))
            return int(reported(node)[0]["containers"][0]["pid"])

    pid = asyncio.run(run())
    assert not Path(f"/proc/{pid}/exe").exists()
    assert Path("/proc/self/mounts").read_text() == mounts


@pytest.mark.root
def test_what_a_killed_runner_left_is_cleared(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    left = node.folders.state / "pods" / "old" / "empty"
    left.mkdir(parents=True)

    async def run() -> None:
        async with running(node):
            await until(node.folders.status_file.exists)

    asyncio.run(run())
    assert not left.exists()


@pytest.mark.root
def test_a_full_disk_stops_no_pod(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = make_node(tmp_path)
    (node.folders.manifests / "sample.yaml").write_text(yaml.safe_dump(shell_pod(LOOP)))
    scratch = node.folders.status_file.with_name(".status.json.new")

    async def run() -> None:
        async with running(node):
            await until(lambda: is_ready(node))
            before = reported(node)
            # As good as a full disk: the report cannot be written.
            scratch.mkdir()
            (node.folders.manifests / "other.yaml").write_text(
                yaml.safe_dump({**shell_pod(LOOP), "metadata": {"name": "other", "namespace": "test"}})
            )
            await until(lambda: "the runner stumbled" in caplog.text)
            scratch.rmdir()
            await until(lambda: is_ready(node, 2))
            assert before[0] in reported(node)

    asyncio.run(run())


@pytest.mark.root
def test_a_runner_in_a_hurry_gives_nobody_much_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podrunner, "LAST_GRACE_SECONDS", 0.1)
    # Were it not for the hurry, this would go on until the suite's own time limit.
    monkeypatch.setattr(pod_worker, "GRACE_CAP_SECONDS", 1000.0)
    node = make_node(tmp_path)
    deaf = shell_pod("trap '' TERM; while true; do sleep 1; done", spec={"terminationGracePeriodSeconds": 1000})
    (node.folders.manifests / "deaf.yaml").write_text(yaml.safe_dump(deaf))

    async def run() -> None:
        async with running(node) as runner:
            await until(lambda: is_ready(node))
            pid = int(reported(node)[0]["containers"][0]["pid"])
            runner.hurry()
        assert not Path(f"/proc/{pid}/exe").exists()

    asyncio.run(run())


def test_a_table_of_images_that_cannot_be_read_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "images.json").write_text("nonsense")
    assert main(["--node", "n", "--node-ip", "10.91.0.10", "--images", str(tmp_path / "images.json")]) == 1
    assert capsys.readouterr().err.startswith("UMB839")


@pytest.mark.parametrize("more", [[], ["--pod-networks", "not-a-network"], ["--back-off-seconds", "soon"]])
def test_wrong_flags_are_refused(tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "images.json").write_bytes(images.to_json({}))
    with pytest.raises(SystemExit) as ended:
        main(["--node", "n", "--images", str(tmp_path / "images.json"), *more])
    assert ended.value.code == 2
    assert "podrunner: error" in capsys.readouterr().err
