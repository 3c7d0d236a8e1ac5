"""Heartbeats against an API that refuses, forgets and comes back. Against the real one: test_api_sync.py."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer, run_async, status_answer

from umbilical.cluster.client import make_client
from umbilical.lab.pods import node_keeper
from umbilical.lab.pods.node import Node
from umbilical.lab.pods.node_keeper import NodeKeeper, this_machine

NODE = Node("worker-0", ("10.91.0.21",), {}, labels={"node-role.kubernetes.io/worker": ""})
ROLE = "node-role.kubernetes.io/worker"


class Api:
    """Keeps a node and a lease; may forbid nodes to give themselves roles, or fail for a while."""

    def __init__(self, *, forbids_roles: bool = False, failures: int = 0, conflicts: int = 0) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.forbids_roles, self.failures, self.conflicts = forbids_roles, failures, conflicts

    def answer(self, request: Request) -> Answer:
        if self.failures > 0:
            self.failures -= 1
            return status_answer(503, "ServiceUnavailable")
        if request.method == "PUT" and self.conflicts > 0:
            self.conflicts -= 1
            return status_answer(409, "Conflict")
        path = request.path.removesuffix("/status")
        if request.method == "GET":
            return json_answer(self.stored[path]) if path in self.stored else status_answer(404, "NotFound")
        body = request.body
        if self.forbids_roles and request.method == "POST" and ROLE in (body["metadata"].get("labels") or {}):
            return status_answer(403, "Forbidden", "is not allowed to set the following labels")
        place = path if request.method == "PUT" else f"{path}/{body['metadata']['name']}"
        self.stored[place] = {**body, "metadata": {**body["metadata"], "uid": "u"}}
        return json_answer(self.stored[place])


def beat(api: Api, folder: Path, times: int = 1) -> list[str]:
    async def run() -> list[str]:
        async with ScriptedApi(api.answer) as server, make_client(server.write_kubeconfig(folder)) as client:
            keeper = NodeKeeper(NODE, client, this_machine())
            for _ in range(times):
                await keeper.beat(time.time())
            return [f"{request.method} {request.path}" for request in server.requests]

    return run_async(run())


def test_the_first_beat_registers_and_the_next_only_renews_the_lease(tmp_path: Path) -> None:
    requests = beat(Api(), tmp_path, times=2)
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    assert requests == [
        "GET /api/v1/nodes/worker-0",
        "POST /api/v1/nodes",
        "PUT /api/v1/nodes/worker-0/status",
        f"GET {lease}/worker-0",
        f"POST {lease}",
        "GET /api/v1/nodes/worker-0",
        f"GET {lease}/worker-0",
        f"PUT {lease}/worker-0",
    ]


def test_a_node_that_may_not_give_itself_roles_is_registered_without(tmp_path: Path) -> None:
    api = Api(forbids_roles=True)
    beat(api, tmp_path)
    assert ROLE not in api.stored["/api/v1/nodes/worker-0"]["metadata"]["labels"]


def keep(api: Api, folder: Path) -> None:
    """Let it beat until node and lease are there."""

    async def run() -> None:
        async with (
            ScriptedApi(api.answer) as server,
            make_client(server.write_kubeconfig(folder), qps=-1) as client,
            asyncio.TaskGroup() as group,
        ):
            task = group.create_task(NodeKeeper(NODE, client, this_machine()).run())
            while len(api.stored) < 2:
                await asyncio.sleep(0.01)
            task.cancel()

    run_async(run())


def test_an_api_that_fails_is_asked_until_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_keeper, "RETRY_SECONDS", 0.01)
    keep(Api(failures=3), tmp_path)
    # One line for three failures of the same kind, not three.
    assert caplog.text.count("UMB604") == 1


def test_a_conflict_is_no_trouble(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep(Api(conflicts=2), tmp_path)
    assert "UMB604" not in caplog.text


def test_this_machine_is_described() -> None:
    machine = this_machine()
    assert machine.processors >= 1
    assert machine.memory_kilobytes > 1000
    assert machine.architecture in ("amd64", "arm64", "ppc64le", "s390x")
