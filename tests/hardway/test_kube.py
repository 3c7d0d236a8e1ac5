"""Queries to a real API: calls with a timeout, nodes, pods and leases."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.api_stock import Stock, config_map, node, pod
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.live_site import live_site, naps_of
from tests.support.made_up_stages import Lines
from tests.support.scripted_api import Answer, ScriptedApi, run_async

import peers
from umbilical.checks.check import Outcome
from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient
from umbilical.fault import ApiUnreachable, StageTimeout
from umbilical.hardway import kube
from umbilical.hardway.kube import PROBES_PER_TABLE, show, wait_for_nodes
from umbilical.hardway.site import ClusterApi, Site
from umbilical.hardway.stage import Condition
from umbilical.hardway.stages.s15_worker_csrs import LEASES, alive_condition, version_condition
from umbilical.host.waiting import NotYet

pytestmark = pytest.mark.real(*PROGRAMS)
MINOR = int(peers.KUBERNETES_VERSION.split(".")[1])


def test_hundreds_of_questions_are_not_slowed_down_to_those_of_a_controller(plane: ControlPlane) -> None:
    async def ask(client: ApiClient) -> int:
        for _ in range(100):
            await client.get_text("/livez")
        return 100

    assert ClusterApi(plane.kubeconfig).call(ask, 60) == 100


def test_what_takes_too_long_is_an_api_that_does_not_answer(plane: ControlPlane) -> None:
    async def ask(client: ApiClient) -> None:
        await asyncio.sleep(60)

    with pytest.raises(ApiUnreachable) as raised:
        ClusterApi(plane.kubeconfig).call(ask, 0.05)
    assert "0.05 s" in raised.value.why


def test_ready_is_its_own_word(site: Site) -> None:
    assert kube.ready_text(site) == "ok"
    assert kube.ready_text(site, site.cluster.masters[0].address) == "ok"


@pytest.mark.parametrize(
    ("status", "body", "seen"),
    [
        (200, b"<html>welcome</html>", "/readyz returned '<html>welcome</html>'"),
        (
            500,
            b"[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststart failed\n",
            "/readyz returned 500: etcd, poststart",
        ),
        (503, b"busy", "/readyz returned 503: busy"),
    ],
)
def test_anything_else_is_not_ready_and_what_is_missing_is_named(
    tmp_path: Path, status: int, body: bytes, seen: str
) -> None:
    async def scenario() -> None:
        async with ScriptedApi(lambda request: Answer(body, status)) as api:
            path = api.write_kubeconfig(tmp_path)
            site = live_site(tmp_path)
            site.kubeconfig = lambda address: path
            with pytest.raises(NotYet) as raised:
                await asyncio.to_thread(kube.ready_text, site)
            assert str(raised.value) == seen

    run_async(scenario())


def test_a_node_is_what_the_config_says_or_it_is_told(site: Site, shelf: Stock) -> None:
    master, worker = site.cluster.members
    shelf.put(node(master.name, str(master.address), Ready="True"), node(worker.name, "192.0.2.1", Ready="False"))
    known = kube.nodes(site)
    found = kube.registered(known, master)
    assert kube.condition(found, "Ready") == "True"
    assert kube.condition(found, "DiskPressure") == ""
    assert kube.internal_addresses(found) == [str(master.address)]
    with pytest.raises(NotYet, match=r"has the addresses \['192.0.2.1'\], not 192.168.126.110"):
        kube.registered(known, worker)
    with pytest.raises(NotYet, match=r"worker-0.ocp4.example.com is not registered"):
        kube.registered({}, worker)


def test_labels_are_set_and_setting_them_twice_is_fine(site: Site, shelf: Stock) -> None:
    name = site.cluster.masters[0].name
    shelf.put(node(name, "192.0.2.1", labels={"own": "label"}))
    for _ in range(2):
        kube.label_nodes(site, {name: {kube.MASTER_LABEL: ""}})
    labels = kube.nodes(site)[name]["metadata"]["labels"]
    assert (labels["own"], labels[kube.MASTER_LABEL]) == ("label", "")


def test_a_pod_is_ready_or_its_trouble_is_told(site: Site, shelf: Stock) -> None:
    place = "kube-system"
    with pytest.raises(NotYet, match="there is no pod kube-system/etcd-master-0"):
        kube.ready_pod(site, place, "etcd-master-0")
    broken = pod("etcd-master-0", place, is_ready=False, tier="plane")
    shelf.put(broken)
    with pytest.raises(NotYet, match="is not Ready: Pending"):
        kube.ready_pod(site, place, "etcd-master-0")
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    row = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    rows = [{**row, "state": {"waiting": waiting}}]
    shelf.put({**broken, "status": {**broken["status"], "containerStatuses": rows}})
    with pytest.raises(NotYet, match="is not Ready: main ImagePullBackOff no such image"):
        kube.ready_pod(site, place, "etcd-master-0")
    shelf.put(pod("etcd-master-0", place, tier="plane"))
    assert kube.ready_pod(site, place, "etcd-master-0")["metadata"]["name"] == "etcd-master-0"
    assert [one["metadata"]["name"] for one in kube.pods(site, place, "tier=plane")] == ["etcd-master-0"]


def test_deletion_tells_whether_there_was_something(site: Site, shelf: Stock) -> None:
    shelf.put(config_map("shortlived", "kube-system", key="value"))
    assert kube.get(site, objects.CONFIG_MAP, "shortlived", "kube-system") is not None
    for was_there in (True, False):
        found = site.api().call(
            lambda client: kube.delete_if_there(client, objects.CONFIG_MAP, "shortlived", "kube-system")
        )
        assert found is was_there


def lease(site: Site, name: str, seconds: int) -> dict[str, Any]:
    moment = (site.now() - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    metadata = {"name": name, "namespace": LEASES}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {"renewTime": moment},
    }


def versioned(site: Site, version: str) -> list[dict[str, Any]]:
    found = [node(one.name, str(one.address)) for one in site.cluster.members]
    for one in found:
        one["status"]["nodeInfo"] = {
            "kubeletVersion": version,
            **dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "osImage"), ""),
            **dict.fromkeys(("containerRuntimeVersion", "kubeProxyVersion", "operatingSystem", "architecture"), ""),
        }
    return found


def test_a_node_is_alive_while_it_renews_its_lease(site: Site, shelf: Stock) -> None:
    condition = alive_condition(site.cluster.members)
    first, second = (one.name for one in site.cluster.members)
    shelf.put(lease(site, first, 5))
    assert condition.check.judge(site).evidence == f"{second}: it has no lease"
    shelf.put(lease(site, second, 100))
    assert condition.check.judge(site).evidence.startswith(f"{second}: its lease is 10")
    shelf.put(lease(site, second, 1))
    assert condition.check.judge(site).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("version", "outcome"),
    [
        (f"v1.{MINOR}.0", Outcome.PASSED),
        (f"v1.{MINOR - 3}.9", Outcome.PASSED),
        (f"v1.{MINOR - 4}.0", Outcome.FAILED),
        (f"v1.{MINOR + 1}.0", Outcome.FAILED),
        ("", Outcome.FAILED),
        ("made-up", Outcome.FAILED),
    ],
)
def test_a_kubelet_is_neither_too_old_nor_newer_than_the_api(
    site: Site, shelf: Stock, version: str, outcome: Outcome
) -> None:
    shelf.put(*versioned(site, version))
    assert version_condition(site.cluster.members).check.judge(site).outcome is outcome


def tables(site: Site) -> list[dict[tuple[str, str], str]]:
    assert isinstance(site.reporter, Lines)
    return [dict(one) for one in site.reporter.tables]


def everybody_registered() -> Condition:
    def probe(site: Site) -> str:
        if len(kube.nodes(site)) < len(site.cluster.members):
            raise NotYet("some are missing")
        return "all"

    return Condition("x", "all are there", "", "", probe)


def test_each_node_is_a_row_that_changes_while_one_waits(site: Site, shelf: Stock) -> None:
    master, worker = site.cluster.members
    shelf.put(node(master.name, str(master.address), Ready="True"))
    shelf.put(pod("one", "kube-system", node_name=master.name))
    shelf.put(pod("two", "kube-system", node_name=master.name, is_ready=False))
    naps_of(site).plans.append(lambda: shelf.put(node(worker.name, str(worker.address), Ready="False")))
    wait_for_nodes(site, 60, everybody_registered())
    before, after = tables(site)
    assert [before["master-0", signal] for signal in ("registered", "ready", "pods")] == ["yes", "yes", "1 of 2"]
    assert [before["worker-0", signal] for signal in ("registered", "ready", "pods")] == ["no", "-", "-"]
    assert [after["worker-0", signal] for signal in ("registered", "ready", "pods")] == ["yes", "no", "0 of 0"]


def test_a_long_wait_does_not_ask_for_it_with_each_look(site: Site) -> None:
    probes = 2 * PROBES_PER_TABLE + 1
    naps_of(site).plans += [lambda: None] * (probes - 1)
    left = iter(range(probes))

    def probe(site: Site) -> str:
        if next(left, None) is None:
            return "all"
        raise NotYet("not yet")

    wait_for_nodes(site, 60, Condition("x", "all are there", "", "", probe))
    assert len(tables(site)) == 3 + 1


def test_without_an_api_there_is_no_table_and_the_wait_tells_why(tmp_path: Path) -> None:
    site = live_site(tmp_path)
    show(site)
    with pytest.raises(StageTimeout):
        wait_for_nodes(site, 0, everybody_registered())
    assert tables(site) == []
