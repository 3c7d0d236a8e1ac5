"""Stage 15 in a real API: workers are labelled, and every node must be Ready without pressure."""

from pathlib import Path

import pytest
from tests.hardway.test_node_health import lease
from tests.support.api_stock import Stock, condition, node
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.live_site import OPENSHIFT, live_site, naps_of, seen_by

from umbilical.checks.check import Outcome
from umbilical.hardway import kube
from umbilical.hardway.site import Site
from umbilical.hardway.stages.s15_worker_csrs import STAGE, ready_sight

pytestmark = pytest.mark.real(*PROGRAMS)


def titles(site: Site) -> list[str]:
    return [step.title for step in STAGE.steps(site)]


def test_who_has_no_workers_waits_for_masters_alone(tmp_path: Path) -> None:
    assert titles(live_site(tmp_path, workers=0)) == ["wait for every node"]
    assert titles(live_site(tmp_path)) == [
        "approve the workers' certificates by rule",
        "label the workers",
        "wait for every node",
    ]
    assert "label the workers" not in titles(live_site(tmp_path, profile=OPENSHIFT))
    assert [check.id for check in STAGE.checks(live_site(tmp_path, workers=0))] == [
        "nodes-ready",
        "nodes-alive",
        "kubelet-versions",
    ]


def test_every_node_must_be_ready_under_its_address(site: Site, shelf: Stock) -> None:
    master, worker = site.cluster.members
    sight = ready_sight(site.cluster.members)
    shelf.put(node(master.name, str(master.address), Ready="True"))
    assert sight.check.judge(site).evidence == f"{worker.name} is not registered"
    not_ready = node(worker.name, str(worker.address))
    shelf.put(not_ready)
    assert sight.check.judge(site).evidence == f"{worker.name} is not Ready: no condition Ready"
    why = "container runtime network not ready: NetworkPluginNotReady"
    not_ready["status"]["conditions"] = [condition("Ready", "False", why)]
    shelf.put(not_ready)
    assert sight.check.judge(site).evidence == f"{worker.name} is not Ready: {why}"
    shelf.put(node(worker.name, str(worker.address), Ready="True", DiskPressure="True"))
    assert sight.check.judge(site).evidence == f"{worker.name} has DiskPressure"
    shelf.put(node(worker.name, str(worker.address), Ready="True", NetworkUnavailable="True"))
    assert sight.check.judge(site).evidence == f"{worker.name} has NetworkUnavailable"
    shelf.put(node(worker.name, str(worker.address), Ready="True", DiskPressure="False"))
    assert sight.check.judge(site).outcome is Outcome.PASSED


def test_workers_are_labelled_and_waited_for(site: Site, shelf: Stock) -> None:
    master, worker = site.cluster.members
    shelf.put(node(master.name, str(master.address), Ready="True"), node(worker.name, str(worker.address)))
    label, wait = STAGE.steps(site)[1:]
    label.act()
    label.act()
    assert kube.WORKER_LABEL in kube.nodes(site)[worker.name]["metadata"]["labels"]
    labels = {kube.WORKER_LABEL: ""}
    naps_of(site).plans.append(lambda: shelf.put(node(worker.name, str(worker.address), labels=labels, Ready="True")))
    shelf.put(lease(site, master.name, 1), lease(site, worker.name, 1))
    wait.act()
    assert len(seen_by(site)) == 1


def test_another_api_server_than_ours_is_not_asked(tmp_path: Path, plane: ControlPlane) -> None:
    site = live_site(tmp_path, plane)
    assert {check.judge(site).outcome for check in STAGE.checks(site)} == {Outcome.FAILED}
