"""The node as the API is told of it, and what the API tells it."""

import asyncio
import base64
import ipaddress
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer, status_answer

from umbilical.cluster.client import make_client
from umbilical.fault import PodWaiting
from umbilical.lab.pods import node_keeper
from umbilical.lab.pods.api_sync import ApiObjects, token_request
from umbilical.lab.pods.node import Folders, RunnerNode
from umbilical.lab.pods.spec import Container, LabPod, SourceKind
from umbilical.lab.pods.status import stamp

POD = LabPod("p", "ns", "u", (Container("a", "i"),))


def test_logs_lie_where_a_kubelet_puts_them_and_two_nodes_bear_different_marks() -> None:
    assert Folders().pod_logs(POD) == Path("/var/log/pods/ns_p_u")
    folders = Folders()
    assert folders.secrets not in folders.status_file.parents
    assert folders.status_file == Path("/run/podrunner/status.json")
    assert folders.pod_files(POD).parent == Path("/var/lib/podrunner/pods")
    nodes = [RunnerNode("a", ("10.91.0.11",), {}), RunnerNode("b", ("10.91.0.12",), {})]
    elsewhere = RunnerNode("a", ("10.91.0.11",), {}, folders=Folders(run=Path("/elsewhere")))
    marks = {node.owner for node in (*nodes, elsewhere)}
    assert len(marks) == 3
    assert all(mark.replace("-", "").isalnum() for mark in marks)


MACHINE = node_keeper.Machine(2, 1000, "6.1", "amd64")
NODE = RunnerNode(
    "master-0",
    ("10.91.0.11", "fd91::11"),
    {},
    (ipaddress.ip_network("10.92.0.0/24"), ipaddress.ip_network("fd92::/64")),
    {"node-role.kubernetes.io/master": "", "zone": "a"},
)
NOW = 1_800_000_000.0


def test_a_node_is_registered_with_its_networks_and_labels() -> None:
    found = node_keeper.node_object(NODE, MACHINE)
    assert found["spec"] == {"podCIDR": "10.92.0.0/24", "podCIDRs": ["10.92.0.0/24", "fd92::/64"]}
    labels = found["metadata"]["labels"]
    assert labels["kubernetes.io/hostname"] == "master-0"
    assert labels["node-role.kubernetes.io/master"] == ""
    labels = node_keeper.node_object(NODE, MACHINE, with_roles=False)["metadata"]["labels"]
    assert "node-role.kubernetes.io/master" not in labels
    assert labels["zone"] == "a"
    assert node_keeper.node_object(RunnerNode("bootstrap", ("10.91.0.10",), {}), MACHINE)["spec"] == {}


def test_a_status_says_ready_and_where_and_is_told_again_when_it_is_old_or_not_true() -> None:
    status = node_keeper.node_status(NODE, MACHINE, {}, NOW)
    assert node_keeper.by_type(status["conditions"])["Ready"]["status"] == "True"
    assert node_keeper.by_type(status["conditions"])["DiskPressure"]["status"] == "False"
    assert [each["address"] for each in status["addresses"]] == ["10.91.0.11", "fd91::11", "master-0"]
    assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 10250
    assert status["capacity"] == {"cpu": "2", "memory": "1000Ki", "pods": "110"}
    assert not node_keeper.needs_update(status, NODE, NOW + 30)
    assert node_keeper.needs_update(status, NODE, NOW + 90)
    assert node_keeper.needs_update({}, NODE, NOW)
    unknown = {**status, "conditions": [{**node_keeper.by_type(status["conditions"])["Ready"], "status": "Unknown"}]}
    assert node_keeper.needs_update(unknown, NODE, NOW)


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    first = node_keeper.node_status(
        NODE, MACHINE, {"conditions": [{"type": "Other", "status": "True"}], "images": []}, NOW
    )
    later = node_keeper.node_status(NODE, MACHINE, first, NOW + 100)
    ready = node_keeper.by_type(later["conditions"])["Ready"]
    assert (ready["lastTransitionTime"], ready["lastHeartbeatTime"]) == (stamp(NOW), stamp(NOW + 100))
    assert "Other" in node_keeper.by_type(later["conditions"])
    assert later["images"] == []


def test_only_the_taint_of_birth_is_taken_off_and_a_lease_keeps_its_version() -> None:
    taints = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, {"key": "mine", "effect": "NoSchedule"}]
    found: dict[str, Any] = {"metadata": {}, "spec": {"podCIDR": "x", "taints": taints}}
    untainted = node_keeper.without_not_ready(found)
    assert untainted is not None
    assert untainted["spec"] == {"podCIDR": "x", "taints": taints[1:]}
    assert node_keeper.without_not_ready(untainted) is None
    assert node_keeper.without_not_ready({"spec": {}}) is None
    fresh = node_keeper.lease_object(NODE, "uid", "now", None)
    assert fresh["metadata"]["namespace"] == "kube-node-lease"
    known = {"metadata": {"name": "master-0", "namespace": "kube-node-lease", "resourceVersion": "7"}}
    renewed = node_keeper.lease_object(NODE, "uid", "later", known)
    assert renewed["metadata"]["resourceVersion"] == "7"
    assert renewed["spec"]["renewTime"] == "later"


WORKER = RunnerNode("worker-0", ("10.91.0.21",), {}, labels={"node-role.kubernetes.io/worker": ""})
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


async def beat(api: Api, folder: Path, times: int = 1) -> list[str]:
    async with ScriptedApi(api.answer) as server, make_client(server.write_kubeconfig(folder)) as client:
        keeper = node_keeper.NodeKeeper(WORKER, client, node_keeper.this_machine())
        for _ in range(times):
            await keeper.beat(time.time())
        return [f"{request.method} {request.path}" for request in server.requests]


async def test_the_first_beat_registers_and_the_next_only_renews_the_lease(tmp_path: Path) -> None:
    requests = await beat(Api(), tmp_path, times=2)
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    assert requests == [
        *("GET /api/v1/nodes/worker-0", "POST /api/v1/nodes", "PUT /api/v1/nodes/worker-0/status"),
        *(f"GET {lease}/worker-0", f"POST {lease}", "GET /api/v1/nodes/worker-0", f"GET {lease}/worker-0"),
        f"PUT {lease}/worker-0",
    ]


async def test_a_node_that_may_not_give_itself_roles_is_registered_without(tmp_path: Path) -> None:
    api = Api(forbids_roles=True)
    await beat(api, tmp_path)
    assert ROLE not in api.stored["/api/v1/nodes/worker-0"]["metadata"]["labels"]


async def keep(api: Api, folder: Path) -> None:
    """Let it beat until node and lease are there."""
    async with (
        ScriptedApi(api.answer) as server,
        make_client(server.write_kubeconfig(folder), qps=-1) as client,
        asyncio.TaskGroup() as group,
    ):
        task = group.create_task(node_keeper.NodeKeeper(WORKER, client, node_keeper.this_machine()).run())
        while len(api.stored) < 2:
            await asyncio.sleep(0.01)
        task.cancel()


async def test_an_api_that_fails_is_asked_until_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_keeper, "RETRY_SECONDS", 0.01)
    await keep(Api(failures=3), tmp_path)
    # One line for three failures of the same kind, not three.
    assert caplog.text.count("UMB604") == 1


async def test_a_conflict_is_no_trouble(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await keep(Api(conflicts=2), tmp_path)
    assert "UMB604" not in caplog.text


ROBOT_POD = LabPod("p", "ns", "u", (Container("a", "i"),), service_account="robot")


async def asked(folder: Path, answer: Answer, *, for_token: bool = False) -> tuple[Any, Request]:
    async with ScriptedApi(lambda _: answer) as server, make_client(server.write_kubeconfig(folder)) as client:
        objects = ApiObjects(client)
        asking = (
            objects.token(ROBOT_POD, "audience", 600) if for_token else objects.values(SourceKind.SECRET, "ns", "s")
        )
        return await asking, server.requests[0]


async def test_a_secrets_values_are_decoded_and_a_missing_one_is_nothing_yet(tmp_path: Path) -> None:
    data = {"key": base64.b64encode(b"value").decode()}
    found, request = await asked(tmp_path, json_answer({"kind": "Secret", "data": data}))
    assert found == {"key": b"value"}
    assert request.path == "/api/v1/namespaces/ns/secrets/s"
    assert (await asked(tmp_path, status_answer(404, "NotFound")))[0] is None
    assert (await asked(tmp_path, status_answer(404, "NotFound"), for_token=True))[0] is None


@pytest.mark.parametrize("status", [401, 403, 500, 503])
async def test_a_refusal_is_waited_for(tmp_path: Path, status: int) -> None:
    with pytest.raises(PodWaiting, match="UMB834"):
        await asked(tmp_path, status_answer(status, "No"))


async def test_a_token_is_asked_for_this_pod_alone(tmp_path: Path) -> None:
    found, request = await asked(tmp_path, json_answer({"status": {"token": "signed"}}), for_token=True)
    assert found == "signed"
    assert request.path == "/api/v1/namespaces/ns/serviceaccounts/robot/token"
    assert request.body["spec"]["boundObjectRef"] == {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    assert token_request(ROBOT_POD, "", 600)["spec"]["audiences"] == []


def test_this_machine_is_described() -> None:
    machine = node_keeper.this_machine()
    assert (machine.processors >= 1, machine.memory_kilobytes > 1000) == (True, True)
    assert machine.architecture in ("amd64", "arm64", "ppc64le", "s390x")
