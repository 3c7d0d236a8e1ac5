"""Stage 12: members join one by one as learners, static pods are copied atomically, all can be undone."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.api_stock import Stock, pod
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.etcdctl import Etcdctl, Row
from tests.support.live_site import OPENSHIFT, StaticPods, live_site, machines_of, naps_of, seen_by
from tests.support.openshift_kinds import reporting, revisions
from tests.support.recording_machines import LocalMachines

from umbilical.checks.check import Outcome
from umbilical.fault import HardwayError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.etcd import BOOTSTRAP_MEMBER, client_url, peer_url
from umbilical.hardway.machines.interface import Done
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Step
from umbilical.hardway.stages.s12_control_plane import STAGE, UNDOERS, pods_condition, voting_condition


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return live_site(tmp_path, masters=2)


@pytest.fixture
def etcd(site: Site) -> Etcdctl:
    made = Etcdctl([Row(1, BOOTSTRAP_MEMBER, peer_url(site.cluster.bootstrap))])
    machines_of(site).responders.append(made)
    return made


def step(site: Site, title: str) -> Step:
    (found,) = [one for one in STAGE.steps(site) if one.title == title]
    return found


def test_one_master_after_the_other_and_etcd_before_the_rest(site: Site) -> None:
    titles = [one.title for one in STAGE.steps(site)]
    of_first = [title for title in titles if "master-0" in title]
    assert (
        titles[: len(of_first)]
        == of_first
        == [
            "add master-0 to etcd as a learner",
            "start etcd on master-0",
            "promote master-0 when it has caught up",
            "start kube-apiserver on master-0",
            "start kube-controller-manager on master-0",
            "start kube-scheduler on master-0",
            "wait for kube-apiserver on master-0",
        ]
    )
    assert titles[-1] == "wait for controllers and scheduler"


def test_a_member_is_added_once_as_a_learner(site: Site, etcd: Etcdctl) -> None:
    add = step(site, "add master-0 to etcd as a learner")
    add.act()
    add.act()
    assert [(row.peer_url, row.is_learner) for row in etcd.rows[1:]] == [("https://192.168.126.101:2380", True)]


def test_it_is_promoted_when_it_has_started_and_caught_up(site: Site, etcd: Etcdctl) -> None:
    step(site, "add master-0 to etcd as a learner").act()
    etcd.promotions_refused = 1

    def begin() -> None:
        etcd.rows[1] = replace(etcd.rows[1], name=site.cluster.masters[0].name)

    naps_of(site).plans.append(begin)
    step(site, "promote master-0 when it has caught up").act()
    seen = seen_by(site)
    assert seen[0] == "master-0 has not started as a member"
    assert "in sync with leader" in seen[1]
    assert seen[2] == "it was just promoted"
    assert not etcd.rows[1].is_learner


def test_a_static_pod_is_put_into_place_whole_and_twice_is_fine(site: Site, tmp_path: Path) -> None:
    site.machines = LocalMachines(str(tmp_path))
    late = tmp_path / layout.NODE_LATE_MANIFESTS.lstrip("/")
    late.mkdir(parents=True)
    (late / "etcd.yaml").write_text("a pod")
    for _ in range(2):
        step(site, "start etcd on master-0").act()
    watched = tmp_path / layout.NODE_MANIFESTS.lstrip("/")
    assert [path.name for path in watched.iterdir()] == ["etcd.yaml"]
    assert (watched / "etcd.yaml").read_text() == "a pod"
    # It stays where it lay: a rollback finds it there.
    assert (late / "etcd.yaml").exists()


def test_a_static_pod_that_is_not_there_is_told(site: Site, tmp_path: Path) -> None:
    site.machines = LocalMachines(str(tmp_path))
    with pytest.raises(HardwayError, match="UMB747"):
        step(site, "start etcd on master-0").act()


def test_what_was_done_can_be_undone_and_undone_again(site: Site, etcd: Etcdctl, tmp_path: Path) -> None:
    step(site, "add master-0 to etcd as a learner").act()
    undo = step(site, "add master-0 to etcd as a learner").undo
    assert undo is not None
    for _ in range(2):
        UNDOERS[undo.name](site, undo.values)
    assert [row.name for row in etcd.rows] == [BOOTSTRAP_MEMBER]


def test_a_member_leaves_while_it_still_votes_or_the_last_two_would_lose_majority(site: Site, etcd: Etcdctl) -> None:
    node = site.cluster.masters[0]
    etcd.rows.append(Row(12, node.name, peer_url(node)))
    machines_of(site).responders.append(StaticPods())
    for one in reversed(STAGE.steps(site)[:2]):
        assert one.undo is not None
        UNDOERS[one.undo.name](site, one.undo.values)
    calls = machines_of(site).calls
    (removed,) = [index for index, call in enumerate(calls) if "member remove" in call]
    assert removed < calls.index("run master-0 rm -f /etc/kubernetes/manifests/etcd.yaml")
    assert [row.name for row in etcd.rows] == [BOOTSTRAP_MEMBER]


def test_after_the_pivot_a_master_is_asked_for_the_members(site: Site) -> None:
    """A stage that is run again then, because a check failed, must not ask for a machine that is off."""
    masters = site.cluster.masters
    etcd = Etcdctl([Row(number, node.name, peer_url(node)) for number, node in enumerate(masters, 2)])

    def answer(node_id: str, command: tuple[str, ...], stdin: bytes) -> Done | None:
        if node_id == site.cluster.bootstrap.id:
            raise HardwayError("UMB738", "bootstrap is not on", "nobody answers there", "umbilical stage status")
        return etcd(node_id, command, stdin)

    machines_of(site).responders.append(answer)
    step(site, "add master-1 to etcd as a learner").act()
    step(site, "promote master-1 when it has caught up").act()
    assert len(etcd.rows) == len(masters)


def test_an_etcd_that_nobody_answers_for_is_told_by_the_first_that_was_asked(site: Site, etcd: Etcdctl) -> None:
    etcd.is_down = True
    with pytest.raises(HardwayError) as raised:
        step(site, "add master-0 to etcd as a learner").act()
    assert raised.value.what == "etcdctl member list failed on bootstrap"


def test_a_withdrawn_etcd_has_ended_before_its_data_goes(site: Site, etcd: Etcdctl) -> None:
    pods = StaticPods("etcd")
    pods.lingering["etcd"] = 2
    machines_of(site).responders.append(pods)
    undo = step(site, "start etcd on master-0").undo
    assert undo is not None
    UNDOERS[undo.name](site, undo.values)
    assert seen_by(site) == ["etcd still runs"]
    calls = machines_of(site).calls
    assert "run master-0 rm -f /etc/kubernetes/manifests/etcd.yaml" in calls
    assert calls[-1] == "run master-0 find /var/lib/etcd -mindepth 1 -delete"


def test_other_pods_are_withdrawn_at_once(site: Site) -> None:
    undo = step(site, "start kube-scheduler on master-0").undo
    assert undo is not None
    UNDOERS[undo.name](site, undo.values)
    assert machines_of(site).calls == ["run master-0 rm -f /etc/kubernetes/manifests/kube-scheduler.yaml"]


def test_a_member_is_healthy_and_votes_or_it_is_told(site: Site, etcd: Etcdctl) -> None:
    node = site.cluster.masters[0]
    condition = voting_condition(node)
    assert condition.check.judge(site).evidence == "master-0 is not a voting member"
    etcd.rows.append(Row(2, node.name, peer_url(node), is_learner=True))
    assert condition.check.judge(site).outcome is Outcome.FAILED
    etcd.rows[1] = replace(etcd.rows[1], is_learner=False)
    assert condition.check.judge(site).evidence == "2 is healthy"
    etcd.unhealthy[client_url(node)] = "context deadline exceeded"
    assert condition.check.judge(site).evidence == "context deadline exceeded"


@pytest.mark.real(*PROGRAMS)
def test_controllers_and_scheduler_are_known_by_mirror_pods(tmp_path: Path, plane: ControlPlane, shelf: Stock) -> None:
    site = live_site(tmp_path, plane)
    (node,) = site.cluster.masters
    programs = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    pods = [pod(f"{program}-{node.name}", "kube-system") for program in programs]
    shelf.put(*pods[:2])
    assert "there is no pod kube-system/kube-scheduler" in pods_condition(node).check.judge(site).evidence
    shelf.put(pods[2])
    step(site, "wait for controllers and scheduler").act()
    step(site, "wait for kube-apiserver on master-0").act()


@pytest.mark.real(*PROGRAMS)
@pytest.mark.usefixtures("openshift_kinds")
def test_in_openshift_operators_do_it_and_this_stage_watches(tmp_path: Path, plane: ControlPlane, shelf: Stock) -> None:
    site = live_site(tmp_path, plane, OPENSHIFT, masters=3)
    (only,) = STAGE.steps(site)
    planes = ("kubeapiservers", "kubecontrollermanagers", "kubeschedulers")
    running = {"type": "EtcdRunningInCluster", "status": "True"}
    naps_of(site).plans += [
        lambda: shelf.put(reporting("etcds", conditions=[running])),
        lambda: shelf.put(*(revisions(plural, 1, 2, 0) for plural in planes)),
    ]
    only.act()
    assert [line.partition(":")[0] for line in seen_by(site)] == [
        "there is no Etcd `cluster`",
        "0 of 2 masters have a revision",
    ]
    assert machines_of(site).calls == []
    assert {check.judge(site).outcome for check in STAGE.checks(site)} == {Outcome.PASSED}
