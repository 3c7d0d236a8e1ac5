"""Conditions of OpenShift's operators, with statuses in a real API; an empty list is not a success."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.api_stock import Stock, condition
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.live_site import OPENSHIFT, live_site
from tests.support.openshift_kinds import pool, reporting, revisions, settled, version
from tests.support.release_directory import release_payload
from tests.support.release_names import VERSION

from umbilical.checks.check import Outcome, Verdict
from umbilical.hardway import operators
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition

pytestmark = [pytest.mark.real(*PROGRAMS), pytest.mark.usefixtures("openshift_kinds")]
NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)


@pytest.fixture
def site(tmp_path: Path, plane: ControlPlane) -> Site:
    made = live_site(tmp_path, plane, OPENSHIFT, masters=3, workers=2)
    made.now = lambda: NOW
    return made


def seen(condition: Condition, site: Site) -> Verdict:
    return condition.check.judge(site)


def test_etcd_runs_in_the_cluster_when_its_operator_says_so(site: Site, shelf: Stock) -> None:
    running = operators.control_plane_conditions(site)[0]
    assert "there is no Etcd `cluster`" in seen(running, site).evidence
    shelf.put(reporting("etcds"))
    assert seen(running, site).evidence == "EtcdRunningInCluster is not reported: "
    why = "3 of 4 members"
    shelf.put(reporting("etcds", conditions=[condition("EtcdRunningInCluster", "False", why)]))
    assert seen(running, site).evidence == "EtcdRunningInCluster is False: 3 of 4 members"
    shelf.put(reporting("etcds", conditions=[condition("EtcdRunningInCluster", "True")]))
    assert seen(running, site) == Verdict(Outcome.PASSED, "EtcdRunningInCluster=True")


@pytest.mark.parametrize("plural", ["kubeapiservers", "kubecontrollermanagers", "kubeschedulers"])
def test_two_masters_must_have_a_revision(site: Site, shelf: Stock, plural: str) -> None:
    condition = next(one for one in operators.control_plane_conditions(site) if plural in one.id)
    assert seen(condition, site).evidence == "0 of 2 masters have a revision"
    shelf.put(revisions(plural, 0, 5, 0))
    assert seen(condition, site).evidence == "1 of 2 masters have a revision"
    shelf.put(revisions(plural, 6, 5, 0))
    assert seen(condition, site) == Verdict(Outcome.PASSED, "2 masters")


def test_a_version_is_complete_when_all_of_it_says_so(site: Site, shelf: Stock) -> None:
    condition = operators.version_condition()
    assert seen(condition, site).evidence == "there is no ClusterVersion `version`"
    shelf.put(version(Failing="True"))
    assert seen(condition, site).evidence == "Failing=True: Failing of the version"
    shelf.put(version(Progressing="True"))
    assert seen(condition, site).evidence.startswith("Progressing=True")
    shelf.put(version("Partial"))
    assert seen(condition, site).evidence == "its history has no completed update"
    shelf.put(version(""))
    assert seen(condition, site).outcome is Outcome.FAILED
    shelf.put(version(reached="4.17.9"))
    assert seen(condition, site).evidence == f"its version is 4.17.9, not {VERSION}"
    shelf.put(version())
    assert seen(condition, site) == Verdict(Outcome.PASSED, VERSION)


def test_a_version_operator_has_started_when_it_reports_its_release(site: Site, shelf: Stock) -> None:
    condition = operators.started_condition()
    assert seen(condition, site).evidence == "there is no ClusterVersion `version`"
    unstarted = version()
    del unstarted["status"]
    shelf.put(unstarted)
    assert seen(condition, site).evidence == "the cluster-version operator has reported nothing"
    shelf.put(version(reached="4.17.9"))
    assert seen(condition, site).evidence == f"the cluster-version operator installs 4.17.9, not {VERSION}"
    shelf.put(version("Partial", Progressing="True", Failing="True"))
    assert seen(condition, site) == Verdict(Outcome.PASSED, "Progressing of the version; Failing of the version")


def test_operators_of_the_control_plane_report_before_it_is_waited_for(site: Site, shelf: Stock) -> None:
    condition = operators.reporting_condition()
    missing = "no report from etcd, kube-apiserver, kube-controller-manager, kube-scheduler, network"
    assert seen(condition, site).evidence == f"{missing}; there is no ClusterVersion `version`"
    created = settled("etcd")
    del created["status"]
    shelf.put(created, *(settled(name, Available="False") for name in operators.FIRST if name != "etcd"))
    shelf.put(version("Partial", Progressing="True"))
    assert seen(condition, site).evidence == "no report from etcd; Progressing of the version"
    shelf.put(settled("etcd"))
    assert seen(condition, site) == Verdict(Outcome.PASSED, "5 operators report; Progressing of the version")


def test_every_operator_of_the_release_must_be_settled(site: Site, shelf: Stock) -> None:
    condition = operators.operators_condition()
    site.operators = ("etcd", "network")
    assert seen(condition, site).evidence == "etcd: the ClusterOperator does not exist"
    shelf.put(settled("etcd"), settled("network", Degraded="True"), settled("not-of-the-release", Available="False"))
    assert seen(condition, site).evidence == "network: Degraded=True: Degraded of network"
    shelf.put(settled("network", Progressing="Unknown"))
    assert seen(condition, site).evidence.startswith("network: Progressing=Unknown")
    shelf.put(settled("network", since=(NOW - timedelta(seconds=20)).isoformat()))
    assert seen(condition, site).evidence == "network: Available changed less than 30 s ago"
    shelf.put(settled("network"))
    assert seen(condition, site) == Verdict(Outcome.PASSED, "2 operators")


def test_no_operators_at_all_are_never_success(site: Site) -> None:
    site.operators = ()
    verdict = seen(operators.operators_condition(), site)
    assert (verdict.outcome, "names no ClusterOperators" in verdict.evidence) == (Outcome.FAILED, True)


def test_a_change_whose_moment_cannot_be_read_is_not_settled() -> None:
    assert operators.operator_trouble(settled("etcd", since="yesterday"), NOW) != ""
    assert operators.operator_trouble(None, NOW) == "the ClusterOperator does not exist"
    assert operators.operator_trouble(settled("etcd"), NOW) == ""


def test_an_operator_of_another_release_is_not_settled() -> None:
    assert operators.operator_trouble(settled("etcd"), NOW, VERSION) == ""
    assert operators.operator_trouble(settled("etcd"), NOW, "4.99.0") == (f"its version is {VERSION}, not 4.99.0")
    silent = settled("etcd")
    del silent["status"]["versions"]
    assert operators.operator_trouble(silent, NOW, VERSION).startswith("its version is unknown")


def test_one_operator_is_enough_where_one_is_needed(site: Site, shelf: Stock) -> None:
    condition = operators.operator_condition("network")
    assert seen(condition, site).evidence == "there is no ClusterOperator network yet"
    shelf.put(settled("network", Available="False"))
    assert seen(condition, site).evidence == "Available of network"
    shelf.put(settled("network", Progressing="True"))
    assert seen(condition, site).outcome is Outcome.PASSED


def test_pools_must_have_every_machine_updated_and_ready(site: Site, shelf: Stock) -> None:
    condition = operators.pools_condition()
    assert seen(condition, site).outcome is Outcome.FAILED
    shelf.put(pool("master", 3), pool("worker", 2, updated=1))
    assert seen(condition, site).evidence == "pool worker: machines, updated, ready are [2, 1, 2]; expected 2 of each"
    shelf.put(pool("worker", 2, degraded=1))
    assert seen(condition, site).outcome is Outcome.FAILED
    shelf.put(pool("worker", 2))
    assert seen(condition, site).outcome is Outcome.PASSED


def manifest(name: str, profile: str = "self-managed-high-availability") -> bytes:
    note = f"include.release.openshift.io/{profile}"
    head = f'metadata: {{name: {name}, annotations: {{{note}: "true"}}}}'
    return f"apiVersion: config.openshift.io/v1\nkind: ClusterOperator\n{head}\n---\n".encode()


def test_operators_of_this_kind_of_cluster_are_found_in_the_order_of_the_files() -> None:
    files = {
        "0000_30_b.yaml": manifest("network") + manifest("dns") + b"kind: Pod\nmetadata: {name: no}\n",
        "0000_20_a.yaml": manifest("etcd") + manifest("network"),
        "0000_40_c.yaml": manifest("hosted-alone", "ibm-cloud-managed") + b"- no object\n",
    }
    assert operators.operators_in(files) == ("etcd", "network", "dns")


def test_the_release_names_its_operators() -> None:
    found = operators.operators_in(release_payload().manifests)
    assert {"etcd", "kube-apiserver", "network", "machine-config"} <= set(found)
    assert len(found) == len(set(found)) > 20
