"""Stages 15 to 17: workers' requests are approved, operators converge, the cluster is verified."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.hardway.test_kube import lease
from tests.support.api_stock import Stock, condition, config_map, finalize, namespace, node, pod
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.hardway import NOW
from tests.support.hardway_everything import usual
from tests.support.live_site import OPENSHIFT, live_site, machines_of, naps_of, seen_by, switch_on, told_by
from tests.support.made_up_smoke_test import NAMESPACE, WEBHOOK, MadeUpSmokeTest
from tests.support.openshift_kinds import pool, settled, version
from tests.support.pivot_testbed import joined

from umbilical.checks.check import Outcome
from umbilical.cluster import objects
from umbilical.fault import HardwayError, StageTimeout
from umbilical.hardway import kube, prober
from umbilical.hardway.artifacts.static_pods import pods
from umbilical.hardway.artifacts.static_pods.kube_proxy import PROGRAM
from umbilical.hardway.etcd import client_url
from umbilical.hardway.machines.interface import Done, Power
from umbilical.hardway.site import Site
from umbilical.hardway.stage import NEVER, Step
from umbilical.hardway.stages import s17_verification
from umbilical.hardway.stages.s15_worker_csrs import STAGE, ready_condition
from umbilical.hardway.stages.s16_convergence import STAGE as CONVERGENCE
from umbilical.hardway.stages.s16_convergence import dns_condition, proxies_condition
from umbilical.hardway.stages.s17_verification import STAGE as VERIFICATION
from umbilical.hardway.stages.s17_verification import etcd_condition, nodes_condition, pods_condition
from umbilical.manifests.tree import Asset

pytestmark = pytest.mark.real(*PROGRAMS)


def titles(site: Site) -> list[str]:
    return [step.title for step in STAGE.steps(site)]


def test_who_has_no_workers_waits_for_masters_alone(tmp_path: Path) -> None:
    assert titles(live_site(tmp_path, workers=0)) == ["wait for every node"]
    assert titles(live_site(tmp_path)) == [
        "approve the workers' certificates",
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
    ready = ready_condition(site.cluster.members)
    shelf.put(node(master.name, str(master.address), Ready="True"))
    assert ready.check.judge(site).evidence == f"{worker.name} is not registered"
    not_ready = node(worker.name, str(worker.address))
    shelf.put(not_ready)
    assert ready.check.judge(site).evidence == f"{worker.name} is not Ready: no condition Ready"
    why = "container runtime network not ready: NetworkPluginNotReady"
    not_ready["status"]["conditions"] = [condition("Ready", "False", why)]
    shelf.put(not_ready)
    assert ready.check.judge(site).evidence == f"{worker.name} is not Ready: {why}"
    shelf.put(node(worker.name, str(worker.address), Ready="True", DiskPressure="True"))
    assert ready.check.judge(site).evidence == f"{worker.name} has DiskPressure"
    shelf.put(node(worker.name, str(worker.address), Ready="True", NetworkUnavailable="True"))
    assert ready.check.judge(site).evidence == f"{worker.name} has NetworkUnavailable"
    shelf.put(node(worker.name, str(worker.address), Ready="True", DiskPressure="False"))
    assert ready.check.judge(site).outcome is Outcome.PASSED


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
    condition = dns_condition()
    assert condition.check.judge(site).evidence == "there is no Deployment kube-system/coredns"
    shelf.put(coredns(2, 2, 1, 1))
    assert condition.check.judge(site).evidence == "updated, ready, available are [2, 1, 1]; expected 2 of each"
    shelf.put(coredns(0, 0, 0, 0))
    assert condition.check.judge(site).outcome is Outcome.FAILED
    shelf.put(coredns(2, 2, 2, 2))
    assert condition.check.judge(site).evidence == "2 ready"


def test_kube_proxy_runs_on_every_node_and_the_stage_ends(site: Site, shelf: Stock) -> None:
    master, worker = site.cluster.members
    shelf.put(coredns(2, 2, 2, 2), pod(f"kube-proxy-{master.name}", "kube-system"))
    assert f"there is no pod kube-system/kube-proxy-{worker.name}" in proxies_condition().check.judge(site).evidence
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
    step = pods.RemovalStep(PROGRAM, 16, "", files=(("master-0", "/etc/kubernetes/manifests/kube-proxy.yaml"),))
    asset = Asset(pods.REMOVALS_PATH, pods.write_removals([step]), 0o644)
    openshift.assets = {**openshift.assets, pods.REMOVALS_PATH: asset}
    machines_of(openshift).powers["master-0"] = Power.ON
    machines_of(openshift).responders.append(lambda node, command, stdin: Done(0, b"", b""))
    wait, remove, _ = CONVERGENCE.steps(openshift)
    naps_of(openshift).plans.append(lambda: shelf.put(settled("network")))
    wait.act()
    assert seen_by(openshift) == ["there is no ClusterOperator network yet"]
    remove.act()
    assert machines_of(openshift).calls == ["run master-0 rm -f /etc/kubernetes/manifests/kube-proxy.yaml"]


def step(site: Site, words: str) -> Step:
    (found,) = [one for one in VERIFICATION.steps(site) if words in one.title]
    return found


def verified_titles(site: Site) -> list[str]:
    return [one.title for one in VERIFICATION.steps(site)]


def test_what_is_tried_depends_on_what_there_is(tmp_path: Path, smoke_test: MadeUpSmokeTest) -> None:
    site = live_site(tmp_path)
    ending = ["show when certificates expire", "delete the objects of the smoke test", "delete the bootstrap machine"]
    assert verified_titles(site) == ending
    site.smoke_test = smoke_test
    tried = ["deploy a workload", "wait until it runs", "reach it by Service address and name"]
    tried += ["read its logs", "forward a port to it"]
    assert verified_titles(site) == [*tried, "call the webhook directly", *ending]
    bigger = live_site(tmp_path, masters=3)
    bigger.smoke_test, bigger.has_tunnel = smoke_test, False
    assert verified_titles(bigger) == [*tried, "kill an API server", *ending]


def test_nodes_are_exactly_those_of_the_config(site: Site, shelf: Stock) -> None:
    master, worker = site.cluster.members
    shelf.put(node(master.name, str(master.address)), node("somebody.example.com", "192.0.2.1"))
    assert nodes_condition().check.judge(site).evidence == (
        f"unexpected: ['somebody.example.com'], missing: ['{worker.name}']"
    )
    shelf.take("Node", "somebody.example.com")
    shelf.put(node(worker.name, str(worker.address)))
    assert nodes_condition().check.judge(site).evidence == "exactly 2"


def test_pods_of_the_system_run_and_none_at_all_is_not_enough(site: Site, shelf: Stock) -> None:
    assert pods_condition().check.judge(site).evidence == "there are no pods"
    broken = pod("crashing", "kube-system", is_ready=False)
    shelf.put(pod("fine", "kube-system"), broken)
    assert pods_condition().check.judge(site).evidence == "crashing Pending"
    broken["status"]["phase"] = "Succeeded"
    shelf.put(broken)
    assert pods_condition().check.judge(site).evidence == "2 pods"


def test_members_of_etcd_are_healthy_and_in_one_term(tmp_path: Path) -> None:
    site = live_site(tmp_path, masters=3)
    etcd = joined(site)
    machines_of(site).responders.append(etcd)
    assert etcd_condition().check.judge(site).evidence == "3 members in term 2"
    last = client_url(site.cluster.masters[2])
    etcd.terms[last] = 3
    assert etcd_condition().check.judge(site).evidence == "members are in different terms: [2, 3]"
    etcd.unhealthy[last] = "context deadline exceeded"
    assert etcd_condition().check.judge(site).evidence == "context deadline exceeded"


@pytest.fixture
def losing(tmp_path: Path, plane: ControlPlane, smoke_test: MadeUpSmokeTest, shelf: Stock) -> Iterator[Site]:
    site = live_site(tmp_path, plane, masters=2)
    site.smoke_test = smoke_test
    shelf.put(namespace(NAMESPACE))
    yield site
    shelf.take("ConfigMap", "kept", NAMESPACE)


def test_data_outlives_an_api_server(losing: Site) -> None:
    machines_of(losing).responders.append(lambda node, command, stdin: Done(0, b"", b""))
    lose = step(losing, "kill an API server")
    for _ in range(2):
        lose.act()
    calls = machines_of(losing).calls
    assert len(calls) == 2
    assert all(call.startswith("run master-0 sh -c") and call.endswith("sh 6443") for call in calls)
    assert any("data survives the loss of an API server" in line for line in told_by(losing))


def test_an_api_server_that_does_not_run_cannot_be_lost(losing: Site) -> None:
    with pytest.raises(HardwayError, match="UMB749"):
        step(losing, "kill an API server").act()


def test_data_that_is_gone_is_told(losing: Site, shelf: Stock, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(node_id: str, command: tuple[str, ...], stdin: bytes) -> Done:
        shelf.take("ConfigMap", "kept", NAMESPACE)
        return Done(0, b"", b"")

    machines_of(losing).responders.append(kill)
    monkeypatch.setattr(s17_verification, "SMOKE_TEST_SECONDS", 0.0)
    with pytest.raises(StageTimeout, match="the written data is missing"):
        step(losing, "kill an API server").act()


def test_the_certificate_that_ends_first_is_told(tmp_path: Path) -> None:
    site = live_site(tmp_path, profile=OPENSHIFT)
    site.assets = usual(OPENSHIFT, 1, 1).assets
    site.now = lambda: NOW + timedelta(hours=5)
    step(site, "certificates expire").act()
    (told,) = told_by(site)
    assert told.startswith("saw the first certificate to expire is ")
    # Short lives are 48 hours.
    assert told.endswith(", in 43 h")


def test_a_deleted_webhook_is_created_again_and_called(site: Site, smoke_test: MadeUpSmokeTest, shelf: Stock) -> None:
    site.smoke_test = smoke_test
    ready = pod(smoke_test.pod, NAMESPACE, node_name=site.cluster.masters[0].name)
    naps_of(site).plans.append(lambda: shelf.put(ready))
    step(site, "call the webhook directly").act()
    assert "saw the webhook is called directly: one object allowed, one denied" in told_by(site)
    shelf.take("ValidatingWebhookConfiguration", WEBHOOK, version="admissionregistration.k8s.io/v1")
    shelf.take("Pod", smoke_test.pod, NAMESPACE)
    shelf.take("Namespace", NAMESPACE)


def test_all_test_objects_are_deleted(site: Site, smoke_test: MadeUpSmokeTest, shelf: Stock) -> None:
    site.smoke_test = smoke_test
    shelf.put(
        namespace(NAMESPACE),
        config_map(prober.COUNTER_NAME, "kube-system", count="5"),
        config_map("umbilical-nonce", "kube-system", nonce="x"),
    )
    naps_of(site).plans.append(lambda: shelf.call(lambda client: finalize(client, NAMESPACE)))
    for _ in range(2):
        step(site, "delete the objects of the smoke test").act()
    for name in (prober.COUNTER_NAME, "umbilical-nonce"):
        assert kube.get(site, objects.CONFIG_MAP, name, "kube-system") is None
    assert kube.get(site, objects.NAMESPACE, NAMESPACE) is None


def test_the_bootstrap_machine_goes_for_good_and_once(site: Site) -> None:
    machines_of(site).powers["bootstrap"] = Power.OFF
    delete = step(site, "delete the bootstrap machine")
    assert delete.undo is not None
    assert delete.undo.name == NEVER
    delete.act()
    delete.act()
    assert machines_of(site).calls == ["remove bootstrap"]


def test_openshifts_etcd_is_its_operators_business(tmp_path: Path, site: Site, smoke_test: MadeUpSmokeTest) -> None:
    switch_on(site)
    site.smoke_test = smoke_test
    ids = [check.id for check in VERIFICATION.checks(site)]
    assert ids == ["nodes-exact", "nodes-ready", "system-pods", "etcd-terms", "trial-gone"]
    assert "etcd-terms" not in [check.id for check in VERIFICATION.checks(live_site(tmp_path, profile=OPENSHIFT))]
    assert VERIFICATION.checks(site)[0].judge(site).outcome is Outcome.FAILED
