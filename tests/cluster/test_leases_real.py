"""Publisher and counter against the real API server, each with no more rights than it needs."""

import asyncio
from pathlib import Path

import pytest
from tests.cluster.lease_samples import LABELS, PATH, SELECTOR
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.manual_clock import ManualClock

from umbilical.cluster.client import ApiClient, make_client
from umbilical.cluster.leases import LeaseCounter, LeasePublisher, lease_name
from umbilical.fault import ApiRefused

pytestmark = pytest.mark.real(*PROGRAMS)


async def _names(client: ApiClient) -> set[str]:
    answer = await client.request("GET", PATH, query={"labelSelector": "k8s-app=konnectivity-server"})
    return {item["metadata"]["name"] for item in answer["items"]}


@pytest.fixture(scope="module")
def server_kubeconfig(plane: ControlPlane) -> Path:
    """A server that may do with leases exactly what it needs, in one namespace."""
    plane.apply(*_role("lease-server", ["get", "create", "update", "list", "delete"], "lease-server"))
    return plane.make_kubeconfig("lease-server")


@pytest.fixture(scope="module")
def agent_kubeconfig(plane: ControlPlane) -> Path:
    plane.apply(*_role("lease-agent", ["get", "list", "watch"], "lease-agent"))
    return plane.make_kubeconfig("lease-agent")


def _role(name: str, verbs: list[str], user: str) -> list[dict[str, object]]:
    api = "rbac.authorization.k8s.io/v1"
    metadata = {"name": name, "namespace": "kube-system"}
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
    return [
        {"apiVersion": api, "kind": "Role", "metadata": metadata, "rules": [rule]},
        {"apiVersion": api, "kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": subjects},
    ]


async def test_real_servers_publish_and_a_real_agent_counts_them(
    server_kubeconfig: Path, agent_kubeconfig: Path
) -> None:
    async with make_client(server_kubeconfig) as servers, make_client(agent_kubeconfig) as agent:
        publishers = [LeasePublisher(servers, name, "kube-system", LABELS) for name in ("r1", "r2")]
        counter = LeaseCounter(agent, "kube-system", SELECTOR)
        counts: list[int | None] = []
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(publisher.run()) for publisher in publishers]
            running.append(tasks.create_task(counter.run()))
            counts.append(await _reached(counter, 2))
            running[0].cancel()
            await publishers[0].withdraw()
            counts.append(await _reached(counter, 1))
            for task in running:
                task.cancel()
        await publishers[1].withdraw()
        assert await _names(agent) == set()
        assert counts == [2, 1]


async def _reached(counter: LeaseCounter, wanted: int) -> int | None:
    while counter.server_count() != wanted:
        await asyncio.sleep(0.02)
    return counter.server_count()


async def test_a_real_conflict_and_a_real_loss_are_both_survived(server_kubeconfig: Path) -> None:
    async with make_client(server_kubeconfig, qps=-1) as client:
        publisher = LeasePublisher(client, "c1", "kube-system", LABELS)
        path = f"{PATH}/{lease_name('c1')}"
        await publisher.renew()
        stolen = await client.request("GET", path)
        await client.request("PUT", path, body={**stolen, "spec": {**stolen["spec"], "holderIdentity": "thief"}})
        await publisher.renew()
        assert (await client.request("GET", path))["spec"]["holderIdentity"] == "c1"
        await client.request("DELETE", path)
        await publisher.renew()
        assert lease_name("c1") in await _names(client)
        await publisher.withdraw()


async def test_really_expired_leases_are_collected_and_renewed_ones_spared(server_kubeconfig: Path) -> None:
    time = ManualClock()
    culled: list[bool] = []
    async with make_client(server_kubeconfig, qps=-1) as client:
        old = LeasePublisher(client, "old", "kube-system", LABELS, clock=time.clock())
        await old.renew()
        time.seconds = 60.0
        young = LeasePublisher(
            client, "young", "kube-system", LABELS, on_culled=lambda: culled.append(True), clock=time.clock()
        )
        await young.renew()
        await young.collect()
        assert await _names(client) == {lease_name("young")}
        await young.withdraw()
    assert culled == [True]


async def test_the_real_api_keeps_a_lease_whose_version_has_moved(server_kubeconfig: Path) -> None:
    async with make_client(server_kubeconfig, qps=-1) as client:
        publisher = LeasePublisher(client, "moved", "kube-system", LABELS)
        await publisher.renew()
        path = f"{PATH}/{lease_name('moved')}"
        with pytest.raises(ApiRefused) as caught:
            await client.request("DELETE", path, body={"preconditions": {"resourceVersion": "1"}})
        assert (caught.value.status, caught.value.reason) == (409, "Conflict")
        await publisher.withdraw()
