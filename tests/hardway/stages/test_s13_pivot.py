"""The pivot: refused unless it is safe, the order of its steps, undo before the point of no return."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.api_stock import Stock, namespace
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.fixture_types import Patch
from tests.support.live_site import OPENSHIFT, changing, live_site, machines_of, naps_of, seen_by, switch_on, told_by
from tests.support.made_up_smoke_test import MadeUpSmokeTest
from tests.support.made_up_stages import Clock, Lines
from tests.support.openshift_kinds import reporting
from tests.support.pivot_testbed import SNAPSHOT, PivotTestbed, lease, make_testbed

from umbilical.checks.check import Outcome
from umbilical.cluster import objects
from umbilical.fault import HardwayError, StageTimeout, Unsafe
from umbilical.hardway import kube
from umbilical.hardway.artifacts.infrastructure.places import HAPROXY_BOOTSTRAP, HAPROXY_FINAL
from umbilical.hardway.ledger import Ledger
from umbilical.hardway.machines.interface import Done, Power
from umbilical.hardway.pipeline import Pipeline
from umbilical.hardway.pivot_conditions import conditions, is_past
from umbilical.hardway.prober import Prober
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition, Stage, Step
from umbilical.hardway.stages import s13_pivot
from umbilical.hardway.stages.catalogue import undoers
from umbilical.hardway.stages.s13_pivot import (
    STAGE,
    endpoints_condition,
    leases_condition,
    member_condition,
    off_condition,
)
from umbilical.hardway.undoing import Undoing
from umbilical.host.waiting import NotYet

pytestmark = pytest.mark.real(*PROGRAMS)
REMOVE = "remove the bootstrap member from etcd"


@pytest.fixture(autouse=True)
def probers(monkeypatch: Patch, plane: ControlPlane) -> Iterator[list[Prober]]:
    """Probers ask the real API where a load balancer would be, and end with the test."""
    made: list[Prober] = []

    class Kept(Prober):
        def start(self) -> None:
            made.append(self)
            super().start()

    monkeypatch.setattr(s13_pivot, "Prober", Kept)
    monkeypatch.setattr(s13_pivot, "API_PORT", plane.port)
    yield made
    for one in made:
        one.stop()


@pytest.fixture
def ready(tmp_path: Path, plane: ControlPlane, shelf: Stock) -> Iterator[PivotTestbed]:
    made = make_testbed(tmp_path, plane, shelf)
    (tmp_path / ".umbilical").mkdir()
    yield made
    shelf.take("ConfigMap", "bootstrap", "kube-system")
    shelf.take("ConfigMap", "umbilical-pivot", "kube-system")


def titled(site: Site, words: str) -> Step:
    (found,) = [step for step in STAGE.steps(site) if words in step.title]
    return found


def mark(site: Site) -> str | None:
    found = kube.get(site, objects.CONFIG_MAP, "bootstrap", "kube-system")
    return None if found is None else str(objects.field(found, "data", "status"))


def shortly(monkeypatch: Patch, *names: str) -> None:
    for name in names:
        monkeypatch.setattr(s13_pivot, name, 0.0)


def _etcd_down(given: PivotTestbed) -> None:
    given.etcd.is_down = True


def test_each_condition_alone_refuses_the_pivot_and_nothing_is_changed(
    ready: PivotTestbed, monkeypatch: Patch, smoke_test: MadeUpSmokeTest
) -> None:
    def probe(site: Site) -> str:
        raise NotYet("made to fail")

    def but_one(site: Site) -> list[Condition]:
        return [replace(one, title="it", probe=probe) if one.id == name else one for one in conditions(site)]

    ready.site.smoke_test = smoke_test
    ready.shelf.put(*smoke_test.webhook_objects(ready.site.cluster.masters[0].name))
    shortly(monkeypatch, "CONDITIONS_SECONDS")
    monkeypatch.setattr(s13_pivot, "conditions", but_one)
    for name in [f"P{number}" for number in range(1, 9)]:
        with pytest.raises(Unsafe, match=f"(?s)UMB745.*{name} it: made to fail"):
            titled(ready.site, "P1 to P8").act()
    assert changing(ready.site) == []
    assert mark(ready.site) is None


def test_conditions_must_hold_twice_ten_seconds_apart(ready: PivotTestbed, monkeypatch: Patch) -> None:
    naps_of(ready.site).plans.append(lambda: _etcd_down(ready))
    shortly(monkeypatch, "CONDITIONS_SECONDS")
    with pytest.raises(Unsafe):
        titled(ready.site, "P1 to P8").act()
    assert naps_of(ready.site).taken == [10.0]
    assert "P2" in seen_by(ready.site)[0]


def test_conditions_that_come_to_hold_are_waited_for(ready: PivotTestbed) -> None:
    _etcd_down(ready)
    naps_of(ready.site).plans.append(lambda: setattr(ready.etcd, "is_down", False))
    titled(ready.site, "P1 to P8").act()
    assert naps_of(ready.site).taken == [1.0, 10.0]


def test_a_snapshot_is_kept_for_its_owner_alone_and_goes_from_the_node(ready: PivotTestbed) -> None:
    titled(ready.site, "snapshot").act()
    kept = ready.site.folder / ".umbilical" / "pivot-snapshot.db"
    assert kept.read_bytes() == b"snapshot" * 300
    assert kept.stat().st_mode & 0o777 == 0o600
    assert machines_of(ready.site).calls[-1] == f"run bootstrap rm -f {SNAPSHOT}"


def test_without_a_snapshot_it_is_not_safe(ready: PivotTestbed) -> None:
    machines_of(ready.site).files["bootstrap", SNAPSHOT] = b""
    with pytest.raises(Unsafe, match="UMB745"):
        titled(ready.site, "snapshot").act()
    assert machines_of(ready.site).balancer_config == b""


def run_all(site: Site) -> None:
    for step in STAGE.steps(site):
        step.act()


def test_the_order_is_balancer_mark_member_tunnel_controllers_api_etcd_power(ready: PivotTestbed) -> None:
    site, at_removal = ready.site, []

    def watch(node_id: str, command: tuple[str, ...], stdin: bytes) -> Done | None:
        if "remove" in command and "member" in command:
            at_removal.append((machines_of(site).balancer_config == site.content(HAPROXY_FINAL), mark(site)))
        return None

    machines_of(site).responders.insert(0, watch)
    run_all(site)
    assert at_removal == [(True, "complete")]
    host_commands = [call for call in changing(site) if not call.startswith("run bootstrap bash")]
    words = [
        "snapshot save",
        "rm -f /var/lib/etcd/pivot-snapshot.db",
        "set_balancer",
        "konnectivity-server",
        "kube-controller-manager-bootstrap.yaml",
        "kube-scheduler-bootstrap.yaml",
        "kube-apiserver-bootstrap.yaml",
        "etcd-bootstrap.yaml",
        "stop bootstrap",
    ]
    assert [word for call, word in zip(host_commands, words, strict=True) if word in call] == words
    assert naps_of(site).taken[:2] == [10.0, 5.0]
    assert [one.check.judge(site).outcome for one in STAGE.make_conditions(site)[:4]] == [Outcome.PASSED] * 4


def test_leadership_is_handed_over_before_the_member_leaves(ready: PivotTestbed) -> None:
    titled(ready.site, REMOVE).act()
    asked = [call for call in machines_of(ready.site).calls if "move-leader" in call or "member remove" in call]
    assert [("move-leader 2" in call, "member remove 1" in call) for call in asked] == [(True, False), (False, True)]
    assert "--endpoints=https://192.168.126.100:2379" in asked[0]


def test_a_leader_that_stays_is_not_moved(ready: PivotTestbed) -> None:
    ready.etcd.leader = 2
    titled(ready.site, REMOVE).act()
    assert not any("move-leader" in call for call in machines_of(ready.site).calls)
    assert [row.number for row in ready.etcd.rows] == [2]


def test_a_bootstrap_member_that_is_dead_is_removed_all_the_same(ready: PivotTestbed) -> None:
    ready.etcd.leader = 2
    dead = "192.168.126.100"
    machines_of(ready.site).responders.insert(
        0, lambda node, command, stdin: Done(1, b"", b"deadline exceeded") if dead in " ".join(command) else None
    )
    titled(ready.site, REMOVE).act()
    assert [row.number for row in ready.etcd.rows] == [2]


def test_etcd_that_refuses_for_a_moment_is_asked_again(ready: PivotTestbed) -> None:
    refusals = [Done(1, b"", b"Error: etcdserver: unhealthy cluster")]
    machines_of(ready.site).responders.insert(
        0, lambda node, command, stdin: refusals.pop() if "remove" in command and refusals else None
    )
    titled(ready.site, REMOVE).act()
    assert "unhealthy cluster" in seen_by(ready.site)[0]
    assert [row.number for row in ready.etcd.rows] == [2]


def test_all_of_it_again_changes_nothing_that_is_over(ready: PivotTestbed) -> None:
    run_all(ready.site)
    before = len(machines_of(ready.site).calls)
    run_all(ready.site)
    again = machines_of(ready.site).calls[before:]
    assert not any("snapshot" in call or "member remove" in call or "rm -f" in call for call in again)
    assert machines_of(ready.site).powers["bootstrap"] is Power.OFF


def test_programs_are_waited_for_before_the_next_one_goes(ready: PivotTestbed) -> None:
    ready.pods.lingering["kube-apiserver"] = 3
    titled(ready.site, "stop kube-apiserver").act()
    assert seen_by(ready.site) == ["kube-apiserver still runs"] * 2
    assert "etcd" in ready.pods.running


def test_the_machine_stays_on_while_the_service_leads_to_it_or_it_leads(
    ready: PivotTestbed, monkeypatch: Patch
) -> None:
    shortly(monkeypatch, "END_SECONDS")
    ready.serve_from(ready.site.cluster.bootstrap, *ready.site.cluster.masters)
    with pytest.raises(StageTimeout, match=r"endpoints are 192.168.126.100, 192.168.126.101, not 192.168.126.101"):
        titled(ready.site, "power off the bootstrap").act()
    ready.serve_from(*ready.site.cluster.masters)
    ready.hold_leases(ready.site.cluster.bootstrap)
    with pytest.raises(StageTimeout, match="kube-controller-manager is held by bootstrap"):
        titled(ready.site, "power off the bootstrap").act()
    assert machines_of(ready.site).powers["bootstrap"] is Power.ON


@pytest.fixture
def judge(ready: PivotTestbed) -> Step:
    """The last step, which checks the probes; the one that starts them is done."""
    steps = STAGE.steps(ready.site)
    steps[2].act()
    return steps[-1]


def test_probes_that_fail_are_told_with_the_first_of_them(judge: Step, probers: list[Prober]) -> None:
    (prober,) = probers
    prober._miss("ConnectionResetError")
    with pytest.raises(HardwayError) as raised:
        judge.act()
    assert raised.value.code == "UMB746"
    assert "ConnectionResetError" in raised.value.why


def test_changes_that_the_watch_missed_are_told(judge: Step, probers: list[Prober]) -> None:
    probers[0].counter.missed = 2
    with pytest.raises(HardwayError, match="the watch missed 2 changes"):
        judge.act()


def test_probes_that_wrote_nothing_show_nothing(judge: Step, monkeypatch: Patch, probers: list[Prober]) -> None:
    probers[0].stop()
    probers[0].counter.written = probers[0].counter.first or 0
    shortly(monkeypatch, "END_SECONDS")
    with pytest.raises(StageTimeout, match="the watch to see every change"):
        judge.act()


def test_probes_are_counted_in_the_record(ready: PivotTestbed) -> None:
    run_all(ready.site)
    noted = ready.site.notes["pivot-probes"]
    assert noted["failures"] == 0
    assert noted["probes"] > 0
    assert any("the watch was interrupted" in line for line in told_by(ready.site))


def test_a_step_that_fails_ends_the_probes(ready: PivotTestbed, monkeypatch: Patch, probers: list[Prober]) -> None:
    shortly(monkeypatch, "REMOVED_SECONDS")
    ready.etcd.is_down = True
    with pytest.raises(StageTimeout):
        titled(ready.site, REMOVE).act()
    assert not probers[0]._thread.is_alive()


def run_until(site: Site, title: str) -> Ledger:
    """Run the stage as users do, and interrupt it before a step."""
    ledger = Ledger(site.folder, Clock())
    pipeline = Pipeline([STAGE], site, ledger, Lines(), lambda stage, step: step.title != title)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(13, 13)
    return ledger


def back(site: Site, ledger: Ledger) -> list[int]:
    stages: Sequence[Stage] = [STAGE]
    return Undoing(stages, undoers(), site, ledger, Lines()).rollback(13)


def test_before_the_member_is_removed_all_is_undone(ready: PivotTestbed) -> None:
    site = ready.site
    ledger = run_until(site, REMOVE)
    assert mark(site) == "complete"
    assert machines_of(site).balancer_config == site.content(HAPROXY_FINAL)
    assert back(site, ledger) == [13]
    assert mark(site) is None
    assert machines_of(site).balancer_config == site.content(HAPROXY_BOOTSTRAP)
    assert [row.number for row in ready.etcd.rows] == [1, 2]


def test_after_it_there_is_no_way_back(ready: PivotTestbed) -> None:
    ledger = run_until(ready.site, "stop controllers and scheduler on the bootstrap node")
    with pytest.raises(Unsafe) as raised:
        back(ready.site, ledger)
    assert raised.value.code == "UMB727"
    assert "snapshot" in raised.value.why
    assert machines_of(ready.site).balancer_config == ready.site.content(HAPROXY_FINAL)


def test_checks_say_what_is_missing(ready: PivotTestbed) -> None:
    site = ready.site
    assert "etcd-bootstrap" in member_condition().check.judge(site).evidence
    assert off_condition().check.judge(site).evidence == "the bootstrap machine is on"
    ready.serve_from()
    assert endpoints_condition().check.judge(site).outcome is Outcome.FAILED
    ready.shelf.take("Lease", "kube-scheduler", "kube-system", "coordination.k8s.io/v1")
    assert leases_condition().check.judge(site).evidence == "kube-scheduler is held by no node"


@pytest.fixture
def openshift(tmp_path: Path, plane: ControlPlane) -> Site:
    return live_site(tmp_path, plane, OPENSHIFT)


def removed(status: str) -> dict[str, Any]:
    return reporting("etcds", conditions=[{"type": "EtcdBootstrapMemberRemoved", "status": status}])


@pytest.mark.usefixtures("openshift_kinds")
def test_in_openshift_the_operator_removes_the_member(openshift: Site, shelf: Stock) -> None:
    switch_on(openshift)
    shelf.put(removed("False"))
    assert not is_past(openshift)
    naps_of(openshift).plans.append(lambda: shelf.put(removed("True")))
    titled(openshift, REMOVE).act()
    assert seen_by(openshift)[0].startswith("EtcdBootstrapMemberRemoved is False")
    assert is_past(openshift)
    titled(openshift, "P1 to P8").act()
    titled(openshift, "snapshot").act()
    assert machines_of(openshift).calls == []
    shelf.take("ConfigMap", "umbilical-pivot", "kube-system")


@pytest.mark.usefixtures("openshift_kinds")
def test_in_openshift_the_mark_is_not_taken_back_once_the_operator_acted_upon_it(openshift: Site, shelf: Stock) -> None:
    titled(openshift, "mark the bootstrap as complete").act()
    shelf.put(removed("True"))
    with pytest.raises(Unsafe, match="UMB727"):
        s13_pivot.unmark(openshift)
    assert mark(openshift) == "complete"
    shelf.put(removed("False"))
    s13_pivot.unmark(openshift)
    assert mark(openshift) is None


def test_in_openshift_the_schedulers_lease_lies_in_its_own_namespace(openshift: Site, shelf: Stock) -> None:
    master, space = openshift.cluster.masters[0].name, "openshift-kube-scheduler"
    shelf.put(namespace(space))
    shelf.put(lease("kube-controller-manager", f"{master}_1"), lease("kube-scheduler", "bootstrap_1"))
    assert leases_condition().check.judge(openshift).evidence == "kube-scheduler is held by no node"
    shelf.put(lease("kube-scheduler", f"{master}_1", space))
    assert leases_condition().check.judge(openshift).outcome is Outcome.PASSED


@pytest.mark.usefixtures("openshift_kinds")
def test_in_openshift_the_snapshot_is_taken_by_etcds_own_container(openshift: Site, tmp_path: Path) -> None:
    (tmp_path / ".umbilical").mkdir()
    machines = machines_of(openshift)
    machines.files["bootstrap", SNAPSHOT] = b"snapshot"
    machines.responders.append(lambda node_id, command, stdin: Done(0, b"", b""))
    titled(openshift, "snapshot").act()
    assert "crictl exec" in machines.calls[0]
    assert machines.calls[0].endswith(f"snapshot save {SNAPSHOT}")
    assert (tmp_path / ".umbilical" / "pivot-snapshot.db").read_bytes() == b"snapshot"


def test_lines_to_be_typed_name_what_is_there(tmp_path: Path) -> None:
    site = live_site(tmp_path, profile=OPENSHIFT)
    assert titled(site, "power off the bootstrap machine").command == "virsh shutdown ocp4-bootstrap"
    assert "{controller-manager,scheduler}" in titled(site, "stop controllers and scheduler").command
