"""A node of the process runner with the real API: bound pods run, their status is told, deleted ones go.

There are no controllers here, so pods are bound by name; whole clusters are in the scenarios.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.pod_nodes import make_node, shell_pod, until

from umbilical.fault import HostError
from umbilical.lab.podrunner import PodRunner
from umbilical.lab.pods.api_sync import contradicts, deletion_grace
from umbilical.lab.pods.node import RunnerNode
from umbilical.lab.pods.node_keeper import by_type
from umbilical.lab.pods.spec import Container, LabPod
from umbilical.lab.pods.status import Running, record_of

REAL = pytest.mark.real("etcd", "kube-apiserver", "kubectl")
LOOP = "trap 'exit 0' TERM; while true; do sleep 0.05; done"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane")) as running:
        yield running


@asynccontextmanager
async def node_of(plane: ControlPlane, folder: Path) -> AsyncIterator[RunnerNode]:
    """Run a node with the rights of a node."""
    node = make_node(folder)
    kubeconfig = plane.make_kubeconfig("system:node:node-1", "system:nodes")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(PodRunner(node, kubeconfig).run())
        try:
            yield node
        finally:
            task.cancel()


async def get(plane: ControlPlane, *what: str) -> dict[str, Any]:
    found = json.loads(await asyncio.to_thread(plane.kubectl, "get", *what, "--ignore-not-found", "-o=json") or "{}")
    assert isinstance(found, dict)
    return found


async def wait_for(
    plane: ControlPlane, what: tuple[str, ...], is_so: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            try:
                found = await get(plane, *what)
            except HostError:
                found = {}
            else:
                if is_so(found):
                    return found
            await asyncio.sleep(0.2)


def an_object(kind: str, name: str, **more: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, **more}


def bound(name: str, script: str = LOOP, *, spec: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    document = shell_pod(script, spec={"nodeName": "node-1", **(spec or {})}, **container)
    document["metadata"] = {"name": name, "namespace": "default"}
    return document


def is_ready(found: dict[str, Any]) -> bool:
    return by_type(found.get("status", {}).get("conditions")).get("Ready", {}).get("status") == "True"


@pytest.mark.root
@REAL
async def test_a_node_registers_and_a_bound_pod_waits_for_its_secret_runs_and_is_let_go(
    plane: ControlPlane, tmp_path: Path
) -> None:
    document = bound(
        "waiter",
        f"cat /pki/key; {LOOP}",
        volumeMounts=[{"name": "pki", "mountPath": "/pki"}],
        spec={"volumes": [{"name": "pki", "secret": {"secretName": "late"}}]},
    )
    secret = an_object("Secret", "late", stringData={"key": "hidden"})
    async with node_of(plane, tmp_path) as node:
        await wait_for(plane, ("node", "node-1"), is_ready)
        await wait_for(plane, ("lease", "node-1", "-n=kube-node-lease"), lambda found: "spec" in found)
        known = await wait_for(plane, ("node", "node-1"), lambda found: not found["spec"].get("taints"))
        assert {"type": "InternalIP", "address": "127.0.0.1"} in known["status"]["addresses"]
        await asyncio.to_thread(plane.apply, document)
        waiting = await wait_for(plane, ("pod", "waiter"), lambda found: "containerStatuses" in found["status"])
        assert waiting["status"]["phase"] == "Pending"
        state = waiting["status"]["containerStatuses"][0]["state"]
        assert state["waiting"]["reason"] == "ContainerCreating"
        await asyncio.to_thread(plane.apply, secret)
        ready = await wait_for(plane, ("pod", "waiter"), is_ready)
        log = node.folders.logs / f"default_waiter_{ready['metadata']['uid']}" / "main" / "0.log"
        await asyncio.to_thread(plane.kubectl, "delete", "pod", "waiter", "--timeout=30s")
        assert await get(plane, "pod", "waiter") == {}
        assert log.read_text() == "hidden"
    status = ready["status"]
    assert (status["phase"], status["podIP"]) == ("Running", "127.0.0.1")
    told = {kind: each["status"] for kind, each in by_type(status["conditions"]).items()}
    assert told == dict.fromkeys(("PodScheduled", "Initialized", "ContainersReady", "Ready"), "True")


@pytest.mark.root
@REAL
async def test_pods_go_on_while_the_api_is_away(plane: ControlPlane, tmp_path: Path) -> None:
    async with node_of(plane, tmp_path) as node:
        await asyncio.to_thread(plane.apply, bound("survivor"))
        await wait_for(plane, ("pod", "survivor"), is_ready)
        before = json.loads(node.folders.status_file.read_bytes())["pods"][0]["containers"][0]
        await asyncio.to_thread(plane.stop_apiserver)
        await asyncio.sleep(2)
        await asyncio.to_thread(plane.start_apiserver)
        assert json.loads(node.folders.status_file.read_bytes())["pods"][0]["containers"][0] == before
        await asyncio.to_thread(plane.apply, bound("latecomer"))
        await wait_for(plane, ("pod", "latecomer"), is_ready)
        await asyncio.to_thread(plane.kubectl, "delete", "pod", "survivor", "latecomer", "--timeout=60s")


@pytest.mark.root
@REAL
async def test_a_pod_that_ends_well_is_not_run_again_and_one_that_cannot_run_is_logged_once(
    plane: ControlPlane, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    volume = {"name": "v", "nfs": {"server": "example.invalid", "path": "/"}}

    def has_succeeded(found: dict[str, Any]) -> bool:
        return bool(found["status"].get("phase") == "Succeeded")

    async with node_of(plane, tmp_path / "1"):
        await asyncio.to_thread(plane.apply, bound("strange", spec={"volumes": [volume]}))
        await asyncio.to_thread(plane.apply, bound("once", "true", spec={"restartPolicy": "Never"}))
        await wait_for(plane, ("pod", "once"), has_succeeded)
        await asyncio.to_thread(plane.kubectl, "delete", "pod", "strange", "--timeout=30s")
    async with node_of(plane, tmp_path / "2") as node:
        await asyncio.to_thread(plane.apply, bound("other"))
        await wait_for(plane, ("pod", "other"), is_ready)
        names = [path.name for path in node.folders.logs.iterdir()]
        assert not any(name.startswith("default_once_") for name in names)
        await asyncio.to_thread(plane.kubectl, "delete", "pod", "other", "once", "--timeout=30s")
    assert caplog.text.count("UMB831") == 1


@pytest.mark.root
@REAL
async def test_a_pod_gets_a_token_of_its_service_account(plane: ControlPlane, tmp_path: Path) -> None:
    account = an_object("ServiceAccount", "robot")
    sources = [{"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}]
    document = bound(
        "holder",
        f"cat /var/run/token; {LOOP}",
        volumeMounts=[{"name": "token", "mountPath": "/var/run"}],
        spec={"serviceAccountName": "robot", "volumes": [{"name": "token", "projected": {"sources": sources}}]},
    )
    async with node_of(plane, tmp_path) as node:
        await asyncio.to_thread(plane.apply, account, document)
        found = await wait_for(plane, ("pod", "holder"), is_ready)
        log = node.folders.logs / f"default_holder_{found['metadata']['uid']}" / "main" / "0.log"
        await until(lambda: bool(log.read_text()))
        await asyncio.to_thread(plane.kubectl, "delete", "pod", "holder", "--timeout=30s")
    claims = log.read_text().split(".")[1]
    content = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert content["sub"] == "system:serviceaccount:default:robot"
    assert content["kubernetes.io"]["pod"]["name"] == "holder"


def test_who_is_deleted_has_the_time_that_was_given() -> None:
    def grace(seconds: int | None) -> float | None:
        given = {} if seconds is None else {"deletionGracePeriodSeconds": seconds}
        return deletion_grace({"metadata": {"deletionTimestamp": "now", **given}})

    assert [deletion_grace({"metadata": one}) for one in ({}, {"deletionGracePeriodSeconds": 5})] == [None, None]
    assert [grace(seconds) for seconds in (5, 0, 3600, None)] == [5.0, 0.0, 10.0, 10.0]


def test_a_status_that_somebody_else_made_wrong_is_noticed() -> None:
    record = record_of(LabPod("p", "ns", "u", (Container("a", "i"),)), "10.91.0.10", 0.0)
    record.is_initialized = True
    record.containers[0].state = Running(0.0)
    record.containers[0].is_ready = True
    good = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    assert not contradicts(good, record)
    assert contradicts({**good, "conditions": [{"type": "Ready", "status": "False"}]}, record)
    assert contradicts({**good, "phase": "Failed"}, record)
