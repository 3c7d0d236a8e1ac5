"""Stages 15 and 16: requests of workers are approved, and operators converge."""

from pathlib import Path
from typing import Any

import pytest
from tests.hardway.test_kube import lease
from tests.support.api_stock import Stock, condition, node, pod
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.live_site import OPENSHIFT, live_site, machines_of, naps_of, seen_by
from tests.support.openshift_kinds import pool, settled, version

from umbilical.assets.hardway.static_pods import removals
from umbilical.assets.hardway.static_pods.kube_proxy import PROGRAM
from umbilical.assets.tree import Asset
from umbilical.checks.check import Outcome
from umbilical.hardway import kube
from umbilical.hardway.machines import Done, Power
from umbilical.hardway.site import Site
from umbilical.hardway.stages.s15_worker_csrs import STAGE, ready_sight
from umbilical.hardway.stages.s16_convergence import STAGE as CONVERGENCE
from umbilical.hardway.stages.s16_convergence import dns_sight, proxies_sight

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


def coredns(wanted: int, updated: int, ready: int, available: int) -> dict[str, Any]:
    labels = {"app": "coredns"}
    spec = {"containers": [{"name": "coredns", "image": "localhost/coredns:lab"}]}
    counts = {"replicas": wanted, "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": available}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "coredns", "namespace": "kube-system"},
        "spec": {"replicas": wanted, "selector": {"matchLabels": labels}, "template": template},
        "status": counts,
    }


def test_dns_has_all_of_its_replicas_and_none_is_not_enough(site: Site, shelf: Stock) -> None:
    sight = dns_sight()
    assert sight.check.judge(site).evidence == "there is no Deployment kube-system/coredns"
    shelf.put(coredns(2, 2, 1, 1))
    assert sight.check.judge(site).evidence == "updated, ready, available are [2, 1, 1], 2 are wanted"
    shelf.put(coredns(0, 0, 0, 0))
    assert sight.check.judge(site).outcome is Outcome.FAILED
    shelf.put(coredns(2, 2, 2, 2))
    assert sight.check.judge(site).evidence == "2 ready"


def test_kube_proxy_runs_on_every_node_and_the_stage_ends(site: Site, shelf: Stock) -> None:
    master, worker = site.cluster.members
    shelf.put(coredns(2, 2, 2, 2), pod(f"kube-proxy-{master.name}", "kube-system"))
    assert f"there is no pod kube-system/kube-proxy-{worker.name}" in proxies_sight().check.judge(site).evidence
    naps_of(site).plans.append(lambda: shelf.put(pod(f"kube-proxy-{worker.name}", "kube-system")))
    (only,) = CONVERGENCE.steps(site)
    only.act()
    assert len(seen_by(site)) == 1
    assert {check.judge(site).outcome for check in CONVERGENCE.checks(site)} == {Outcome.PASSED}


@pytest.fixture
def openshift(tmp_path: Path, plane: ControlPlane) -> Site:
    made = live_site(tmp_path, plane, OPENSHIFT, masters=3, workers=2)
    made.operators = ("etcd", "network")
    return made


@pytest.mark.usefixtures("openshift_kinds")
def test_openshift_has_settled_when_version_operators_and_pools_say_so(openshift: Site, shelf: Stock) -> None:
    naps_of(openshift).plans += [
        lambda: shelf.put(version()),
        lambda: shelf.put(settled("etcd"), settled("network")),
        lambda: shelf.put(pool("master", 3), pool("worker", 2)),
    ]
    CONVERGENCE.steps(openshift)[-1].act()
    assert [line.partition(":")[0] for line in seen_by(openshift)] == [
        "there is no ClusterVersion `version`",
        "etcd",
        "pool master",
    ]
    assert {check.judge(openshift).outcome for check in CONVERGENCE.checks(openshift)} == {Outcome.PASSED}


@pytest.mark.usefixtures("openshift_kinds")
def test_a_kube_proxy_that_helped_the_network_operator_goes_when_that_stands(openshift: Site, shelf: Stock) -> None:
    step = removals.Removal(PROGRAM, 16, "", files=(("master-0", "/etc/kubernetes/manifests/kube-proxy.yaml"),))
    asset = Asset(removals.PATH, removals.write_removals([step]), 0o644)
    openshift.assets = {**openshift.assets, removals.PATH: asset}
    machines_of(openshift).powers["master-0"] = Power.ON
    machines_of(openshift).responders.append(lambda node, command, stdin: Done(0, b"", b""))
    wait, remove, _ = CONVERGENCE.steps(openshift)
    naps_of(openshift).plans.append(lambda: shelf.put(settled("network")))
    wait.act()
    assert seen_by(openshift) == ["there is no ClusterOperator network yet"]
    remove.act()
    assert machines_of(openshift).calls == ["run master-0 rm -f /etc/kubernetes/manifests/kube-proxy.yaml"]
