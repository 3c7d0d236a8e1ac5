"""Stage 11: masters boot, are labelled by us where kubelets may not, and reach the service `kubernetes`."""

from pathlib import Path

import pytest
from tests.support.api_stock import Stock, node
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.etcdctl import Etcdctl, Row
from tests.support.live_site import OPENSHIFT, live_site, machines_of, seen_by
from tests.support.made_up_trial import MadeUpTrial

from umbilical.checks.check import Outcome
from umbilical.hardway import kube
from umbilical.hardway.etcd import peer_url
from umbilical.hardway.machines import Done
from umbilical.hardway.site import Site
from umbilical.hardway.stages.s11_masters import STAGE, labelled_sight, role_labels, service_sight


def titles(site: Site) -> list[str]:
    return [step.title for step in STAGE.steps(site)]


def test_kubernetes_needs_all_of_it_and_openshift_does_the_rest_itself(tmp_path: Path, trial: MadeUpTrial) -> None:
    site = live_site(tmp_path, masters=2)
    assert titles(site) == [
        "install master-0",
        "install master-1",
        "approve the masters' certificates by rule",
        "label the masters",
        "wait for services",
        "wait for the tunnel's agents",
    ]
    site.trial = trial
    assert titles(site)[6:] == [
        "put a webhook into a pod on master-0",
        "wait for the webhook's pod",
        "have an object judged through the tunnel",
    ]
    openshift = live_site(tmp_path, profile=OPENSHIFT)
    assert titles(openshift) == ["install master-0", "approve the masters' certificates by rule"]


def test_after_the_pivot_nobody_waits_for_the_tunnel_or_asks_through_it(tmp_path: Path, trial: MadeUpTrial) -> None:
    site = live_site(tmp_path)
    site.trial = trial
    (master,) = site.cluster.masters
    machines_of(site).responders.append(Etcdctl([Row(2, master.name, peer_url(master))]))
    for step in STAGE.steps(site)[-4:]:
        step.act()
    assert seen_by(site) == []


def test_labels_are_those_of_roles(tmp_path: Path) -> None:
    site = live_site(tmp_path)
    master, worker = site.cluster.members
    assert role_labels(site, [master]) == {master.name: {kube.CONTROL_PLANE_LABEL: "", kube.MASTER_LABEL: ""}}
    assert role_labels(site, [worker]) == {worker.name: {kube.WORKER_LABEL: ""}}


@pytest.mark.real(*PROGRAMS)
def test_masters_are_labelled_and_labelling_twice_is_fine(tmp_path: Path, plane: ControlPlane, shelf: Stock) -> None:
    site = live_site(tmp_path, plane)
    (master,) = site.cluster.masters
    shelf.put(node(master.name, str(master.address)))
    sight = labelled_sight([master])
    assert sight.check.judge(site).evidence == (
        f"{master.name} lacks the labels {kube.CONTROL_PLANE_LABEL}, {kube.MASTER_LABEL}"
    )
    (label,) = [step for step in STAGE.steps(site) if step.title == "label the masters"]
    label.act()
    label.act()
    assert sight.check.judge(site).outcome is Outcome.PASSED


def test_services_are_asked_from_each_node_with_the_clusters_authority(tmp_path: Path) -> None:
    site = live_site(tmp_path, masters=2)
    given: list[bytes] = []

    def curl(node_id: str, command: tuple[str, ...], stdin: bytes) -> Done:
        given.append(stdin)
        return Done(0, b"ok", b"") if node_id == "master-0" else Done(28, b"", b"curl: (28) Connection timed out")

    machines_of(site).responders.append(curl)
    sight = service_sight(site.cluster.masters)
    assert sight.check.judge(site).evidence == "master-1: curl: (28) Connection timed out"
    assert sight.signatures[0].hint.startswith("nothing translates service addresses")
    assert [call.split()[-1] for call in machines_of(site).calls] == ["https://172.30.0.1/readyz"] * 2
    assert all(b"BEGIN CERTIFICATE" in one for one in given)
    assert service_sight(site.cluster.masters[:1]).check.judge(site).outcome is Outcome.PASSED


def test_an_answer_that_is_not_ok_is_not_taken_for_it(tmp_path: Path) -> None:
    site = live_site(tmp_path)
    machines_of(site).responders.append(lambda node_id, command, stdin: Done(0, b"<html>", b""))
    assert service_sight(site.cluster.masters).check.judge(site).evidence == "master-0: <html>"
