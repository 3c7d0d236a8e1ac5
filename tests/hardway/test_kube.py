"""Questions to a real API: whether it is ready, its nodes, its pods; each says what it saw."""

import asyncio
from pathlib import Path

import pytest
from tests.support.api_stock import Stock, config_map, node, pod
from tests.support.control_plane import PROGRAMS
from tests.support.live_site import live_site
from tests.support.scripted_api import Answer, ScriptedApi, run_async

from umbilical.cluster import objects
from umbilical.hardway import kube
from umbilical.hardway.site import Site
from umbilical.hardway.waiting import NotYet

pytestmark = pytest.mark.real(*PROGRAMS)


def test_ready_is_its_own_word(site: Site) -> None:
    assert kube.ready_text(site) == "ok"
    assert kube.ready_text(site, site.cluster.masters[0].address) == "ok"


@pytest.mark.parametrize(
    ("status", "body", "seen"),
    [
        (200, b"<html>welcome</html>", "/readyz says '<html>welcome</html>'"),
        (500, b"[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststart failed\n", "/readyz is 500: etcd, poststart"),
        (503, b"busy", "/readyz is 503: busy"),
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
